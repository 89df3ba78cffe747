// The list of jobs as it is browsed: pages around the view, kept current, without ever moving what the
// reader looks at. New jobs are counted, and shown when the reader is at the top or asks for them.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../api/client";
import { generation } from "../api/connection";
import { listedJob, listJobs } from "../api/jobs";
import type { JobFilter, JobPage, ListedJob } from "../api/jobs";
import { follow } from "../api/stream";
import { capabilities } from "../api/venue";
import { useInterval } from "../lib/load";
import { useStore } from "../lib/store";

const PAGE = 100;
/** Pages that are kept in memory. */
const PAGES_MAX = 20;
/** How often the list is read while the venue offers no event stream. */
const POLL_MS = 2000;
/** The shortest pause between two reads that events of single jobs cause. */
const EVENT_MS = 250;
/** The same if many jobs change: many consoles may follow them. */
const COUNTS_MS = 2000;

interface State {
  readonly total: number | undefined;
  readonly isTotalAtLeast: boolean;
  /** Jobs that were created since the reader left the top. */
  readonly added: number;
  readonly error: unknown;
  readonly round: number;
}

const EMPTY: State = {
  total: undefined,
  isTotalAtLeast: false,
  added: 0,
  error: undefined,
  round: 0,
};

export interface BrowsedList extends State {
  readonly at: (index: number) => ListedJob | undefined;
  readonly ensure: (from: number, to: number) => void;
  readonly setIsAtTop: (isAtTop: boolean) => void;
  /** Reads the beginning again, after a failure. */
  readonly reload: () => void;
  readonly showAdded: () => void;
  readonly isLive: boolean;
}

export function useJobList(filter: JobFilter): BrowsedList {
  const key = JSON.stringify(filter);
  const pages = useRef(new Map<number, readonly ListedJob[]>());
  const loading = useRef(new Set<number>());
  const abort = useRef(new AbortController());
  const range = useRef({ from: 0, to: PAGE });
  const isAtTop = useRef(true);
  const totals = useRef({ shown: 0, latest: 0 });
  /** Reads that have not been answered yet, and whether an event has overtaken one of them. */
  const reads = useRef({ open: 0, areOvertaken: false });
  const [state, setState] = useState(EMPTY);
  const { hasEvents } = useStore(capabilities);
  const current = useStore(generation);

  const render = (change: Partial<State> = {}): void =>
    setState((before) => ({ ...before, ...change, round: before.round + 1 }));

  const read = async (offset: number, signal: AbortSignal): Promise<JobPage> => {
    reads.current.open++;
    try {
      return await listJobs(filter, offset, PAGE, "newest", signal);
    } finally {
      const isLast = --reads.current.open === 0;
      if (isLast && reads.current.areOvertaken && !signal.aborted) {
        reads.current.areOvertaken = false;
        setTimeout(() => void refresh(signal), EVENT_MS);
      }
    }
  };

  const loadPage = useCallback(
    (page: number, signal: AbortSignal): void => {
      if (loading.current.has(page)) return;
      loading.current.add(page);
      // The list starts with the newest job, so jobs that were added move everything else.
      const shift = Math.max(0, totals.current.latest - totals.current.shown);
      read(page * PAGE + shift, signal).then(
        (found) => {
          loading.current.delete(page);
          if (signal.aborted) return;
          keep(pages.current, page, found.items);
          totals.current.latest = found.total;
          render({ error: undefined });
        },
        (error: unknown) => {
          loading.current.delete(page);
          if (!isAbort(error) && !signal.aborted) render({ error });
        },
      );
    },
    [key],
  );

  const refresh = useCallback(
    async (signal: AbortSignal): Promise<void> => {
      try {
        const found = await read(0, signal);
        if (signal.aborted) return;
        totals.current.latest = found.total;
        if (isAtTop.current || totals.current.shown === 0 || found.total < totals.current.shown) {
          totals.current.shown = found.total;
          keep(pages.current, 0, found.items);
        }
        const { from, to } = range.current;
        for (let page = Math.floor(from / PAGE); page * PAGE < to; page++) {
          if (page > 0 || !isAtTop.current) loadPage(page, signal);
        }
        render({
          total: totals.current.shown,
          isTotalAtLeast: found.isTotalAtLeast,
          added: totals.current.latest - totals.current.shown,
          error: undefined,
        });
      } catch (error) {
        if (!isAbort(error) && !signal.aborted) render({ error });
      }
    },
    [key],
  );

  useEffect(() => {
    const controller = new AbortController();
    abort.current = controller;
    pages.current = new Map();
    loading.current = new Set();
    totals.current = { shown: 0, latest: 0 };
    isAtTop.current = true;
    setState(EMPTY);
    void refresh(controller.signal);
    return () => controller.abort();
  }, [key, current]);

  useInterval(() => {
    if (!hasEvents) void refresh(abort.current.signal);
  }, POLL_MS);

  // One stream for the list. A job that is shown is updated in its place; for anything else the list
  // is read again.
  useEffect(() => {
    if (!hasEvents) return;
    let stop: (() => void) | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const query = new URLSearchParams(filter as Record<string, string>);
    const start = (): void => {
      stop?.();
      stop = undefined;
      if (document.visibilityState !== "visible") return;
      stop = follow(`/api/v1/events?${query}`, {
        onEvent: ({ event, data }) => {
          // Only what happens after this is sent, so the list is read now: what was read before may
          // lack a job that was created before the stream was ready.
          if (event === "ready") return void refresh(abort.current.signal);
          if (event === "job" && replace(pages.current, filter, data)) {
            render();
            // An answer that is under way may be older than this event, and would undo it.
            reads.current.areOvertaken = reads.current.open > 0;
            return;
          }
          const pause = event === "counts" ? COUNTS_MS : EVENT_MS;
          timer ??= setTimeout(() => {
            timer = undefined;
            void refresh(abort.current.signal);
          }, pause);
        },
        isDone: () => false,
      });
    };
    start();
    document.addEventListener("visibilitychange", start);
    return () => {
      document.removeEventListener("visibilitychange", start);
      stop?.();
      clearTimeout(timer);
    };
  }, [key, hasEvents]);

  return {
    ...state,
    isLive: hasEvents,
    at: (index) => pages.current.get(Math.floor(index / PAGE))?.[index % PAGE],
    ensure: (from, to) => {
      range.current = { from, to };
      for (let page = Math.floor(from / PAGE); page * PAGE < to; page++) {
        if (!pages.current.has(page)) loadPage(page, abort.current.signal);
      }
    },
    setIsAtTop: (value) => {
      isAtTop.current = value;
    },
    reload: () => void refresh(abort.current.signal),
    showAdded: () => {
      isAtTop.current = true;
      pages.current = new Map();
      totals.current.shown = 0;
      void refresh(abort.current.signal);
    },
  };
}

/** Replaces a job where it is shown, if it still belongs there. Returns whether that is all. */
function replace(
  pages: Map<number, readonly ListedJob[]>,
  filter: JobFilter,
  data: string,
): boolean {
  const changed = listedJob(parse(data));
  if (changed === undefined) return false;
  for (const [page, items] of pages) {
    const at = items.findIndex(({ id }) => id === changed.id);
    if (at < 0) continue;
    pages.set(page, items.with(at, changed));
    return filter.status === undefined || filter.status === changed.status;
  }
  return false;
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}

/** Adds a page and drops the one that was used longest ago. */
function keep(
  pages: Map<number, readonly ListedJob[]>,
  page: number,
  items: readonly ListedJob[],
): void {
  pages.delete(page);
  pages.set(page, items);
  for (const old of pages.keys()) {
    if (pages.size <= PAGES_MAX) return;
    pages.delete(old);
  }
}
