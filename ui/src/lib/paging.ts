// A long list of which only the pages near the view are loaded and kept.

import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../api/client";
import { generation } from "../api/connection";
import { useStore } from "./store";

/** Pages that are kept; a list of any length needs no more memory than these. */
const PAGES_MAX = 12;

export interface LoadedPage<T> {
  readonly items: readonly T[];
  readonly total: number;
}

export interface Paging<T> {
  readonly at: (index: number) => T | undefined;
  /** Undefined until the first page is there. */
  readonly total: number | undefined;
  readonly error: unknown;
  /** Loads what is missing of this range. */
  readonly ensure: (from: number, to: number) => void;
  /** Loads everything again. */
  readonly reload: () => void;
}

/**
 * Loads the first page, and others on demand. Everything is loaded again when the key changes, when the
 * venue is back, and on request.
 */
export function usePaging<T>(
  load: (offset: number, limit: number, signal: AbortSignal) => Promise<LoadedPage<T>>,
  size: number,
  key: string,
): Paging<T> {
  const kept = useRef(new Map<number, readonly T[]>());
  const loading = useRef(new Set<number>());
  const abort = useRef(new AbortController());
  const [state, setState] = useState<{ key: string; total: number | undefined; error: unknown }>({
    key,
    total: undefined,
    error: undefined,
  });
  const [, setRound] = useState(0);
  const [reloads, setReloads] = useState(0);
  const current = useStore(generation);
  const request = (page: number): void => {
    if (loading.current.has(page)) return;
    loading.current.add(page);
    const { signal } = abort.current;
    load(page * size, size, signal).then(
      ({ items, total }) => {
        if (signal.aborted) return;
        loading.current.delete(page);
        kept.current.delete(page);
        kept.current.set(page, items);
        for (const old of kept.current.keys()) {
          if (kept.current.size <= PAGES_MAX) break;
          kept.current.delete(old);
        }
        setState({ key, total, error: undefined });
        setRound((n) => n + 1);
      },
      (error: unknown) => {
        if (signal.aborted || isAbort(error)) return;
        loading.current.delete(page);
        setState((before) => ({ ...before, key, error }));
      },
    );
  };
  useEffect(() => {
    abort.current = new AbortController();
    kept.current = new Map();
    loading.current = new Set();
    setState({ key, total: undefined, error: undefined });
    request(0);
    const controller = abort.current;
    return () => controller.abort();
  }, [key, reloads, current]);
  const isCurrent = state.key === key;
  return {
    at: (index) => (isCurrent ? kept.current.get(Math.floor(index / size))?.[index % size] : undefined),
    total: isCurrent ? state.total : undefined,
    error: isCurrent ? state.error : undefined,
    ensure: (from, to) => {
      for (let page = Math.floor(from / size); page * size < to; page++) {
        if (!kept.current.has(page)) request(page);
      }
    },
    reload: () => setReloads((n) => n + 1),
  };
}
