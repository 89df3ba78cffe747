// Loading what a page shows: again when its arguments change, when the venue is back, and on request.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../api/client";
import { generation } from "../api/connection";
import { Store, useStore } from "./store";

export interface Loaded<T> {
  readonly value: T | undefined;
  readonly error: unknown;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

/**
 * Loads a value. While it is loaded again for the same arguments, the previous one stays, so that
 * nothing flickers; for other arguments it is dropped.
 */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
): Loaded<T> {
  const [state, setState] = useState<{ value: T | undefined; error: unknown; isLoading: boolean }>({
    value: undefined,
    error: undefined,
    isLoading: true,
  });
  const [round, setRound] = useState(0);
  const current = useStore(generation);
  const key = JSON.stringify(dependencies);
  const shownKey = useRef(key);
  useEffect(() => {
    const abort = new AbortController();
    const isSame = shownKey.current === key;
    shownKey.current = key;
    setState((before) => ({
      value: isSame ? before.value : undefined,
      error: undefined,
      isLoading: true,
    }));
    load(abort.signal).then(
      (value) => {
        if (!abort.signal.aborted) setState({ value, error: undefined, isLoading: false });
      },
      (error: unknown) => {
        if (abort.signal.aborted || isAbort(error)) return;
        setState((before) => ({ value: before.value, error, isLoading: false }));
      },
    );
    return () => abort.abort();
  }, [key, round, current]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  // Until the effect has run, the state is that of the previous arguments.
  if (shownKey.current !== key) return { value: undefined, error: undefined, isLoading: true, reload };
  return { ...state, reload };
}

/** Calls a function regularly while the page can be seen, and once when it is shown again. */
export function useInterval(tick: () => void, ms: number): void {
  const latest = useRef(tick);
  latest.current = tick;
  useEffect(() => {
    const run = (): void => {
      if (document.visibilityState === "visible") latest.current();
    };
    const timer = setInterval(run, ms);
    document.addEventListener("visibilitychange", run);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", run);
    };
  }, [ms]);
}

/** One clock per interval, which all components share: a list shows hundreds of times. */
const clocks = new Map<number, Store<number>>();

function clock(ms: number): Store<number> {
  let found = clocks.get(ms);
  if (!found) {
    const made = new Store(Date.now());
    const tick = (): void => {
      if (document.visibilityState === "visible") made.set(Date.now());
    };
    setInterval(tick, ms);
    document.addEventListener("visibilitychange", tick);
    clocks.set(ms, made);
    found = made;
  }
  return found;
}

/** The current time, which renders the component again at this interval. */
export function useNow(ms: number): number {
  // The clock may have last ticked before the component was made.
  return Math.max(useStore(clock(ms)), useMade());
}

function useMade(): number {
  const made = useRef(0);
  if (made.current === 0) made.current = Date.now();
  return made.current;
}
