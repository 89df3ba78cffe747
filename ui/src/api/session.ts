// The token of the person who uses the console. It is kept in memory, or in session storage if the
// person asks for it; never in a URL, a log or local storage.

import { location } from "../lib/router";
import { Store } from "../lib/store";

const KEY = "catena.token";

function stored(): string | undefined {
  try {
    return sessionStorage.getItem(KEY) ?? undefined;
  } catch {
    return undefined;
  }
}

export const token = new Store<string | undefined>(
  typeof sessionStorage === "undefined" ? undefined : stored(),
);

/** Why the sign-in dialog is open. Undefined while it is closed. */
export const signIn = new Store<{ readonly reason: string } | undefined>(undefined);

let waiting: ((isSignedIn: boolean) => void)[] = [];

// After "Not now", requests that repeat by themselves must not open the dialog again. Going to another
// page asks anew.
let isDismissed = false;
location.subscribe(() => {
  isDismissed = false;
});

/** Opens the sign-in dialog for a request that was refused, unless the person has just dismissed the dialog. */
export function mayRequestSignIn(reason: string): Promise<boolean> {
  return isDismissed ? Promise.resolve(false) : requestSignIn(reason);
}

/** Opens the sign-in dialog. Resolves with true once a token was given, with false if not. */
export function requestSignIn(reason: string): Promise<boolean> {
  signIn.set({ reason });
  return new Promise((resolve) => waiting.push(resolve));
}

function close(isSignedIn: boolean): void {
  signIn.set(undefined);
  const resolved = waiting;
  waiting = [];
  for (const resolve of resolved) resolve(isSignedIn);
}

/** Uses this token from now on. Requests that were waiting for it are sent again. */
export function useToken(given: string, isKept: boolean): void {
  isDismissed = false;
  token.set(given);
  try {
    if (isKept) sessionStorage.setItem(KEY, given);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage is unavailable; the token lasts until the page is closed.
  }
  close(true);
}

export function dismissSignIn(): void {
  isDismissed = true;
  close(false);
}

export function signOut(): void {
  token.set(undefined);
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was stored.
  }
}
