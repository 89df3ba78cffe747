// Whether the venue can be reached. Every request reports to this module; while the venue cannot be
// reached, it is probed with growing pauses, and pages load again once it is back.

import { Store } from "../lib/store";

export type Connection =
  | { readonly state: "online" }
  | { readonly state: "offline"; readonly since: number; readonly isStopping: boolean }
  | { readonly state: "back"; readonly since: number; readonly until: number };

export const connection = new Store<Connection>({ state: "online" });

/** Increased whenever the venue is back, so that pages load what they show again. */
export const generation = new Store(0);

const PROBE_MS_MIN = 500;
const PROBE_MS_MAX = 8000;

let timer: ReturnType<typeof setTimeout> | undefined;

/** The venue did not answer, or answered that it is stopping. */
export function reportFailure(isStopping: boolean): void {
  const current = connection.get();
  const since = current.state === "offline" ? current.since : Date.now();
  connection.set({ state: "offline", since, isStopping });
  if (timer === undefined) schedule(PROBE_MS_MIN);
}

function schedule(pause: number): void {
  timer = setTimeout(() => {
    void probe().then((isUp) => {
      timer = undefined;
      if (isUp) reportSuccess();
      else schedule(Math.min(2 * pause, PROBE_MS_MAX));
    });
  }, pause);
}

async function probe(): Promise<boolean> {
  try {
    const response = await fetch("/readyz", { cache: "no-store" });
    return response.ok;
  } catch {
    return false;
  }
}

function reportSuccess(): void {
  const current = connection.get();
  if (current.state !== "offline") return;
  clearTimeout(timer);
  timer = undefined;
  connection.set({ state: "back", since: current.since, until: Date.now() });
  generation.update((n) => n + 1);
}

/** Tries again now, without waiting for the next probe. */
export function retryNow(): void {
  clearTimeout(timer);
  timer = undefined;
  schedule(0);
}

export function dismissBack(): void {
  if (connection.get().state === "back") connection.set({ state: "online" });
}
