// A job as it is now: loaded once, then followed.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../../api/client";
import { generation } from "../../api/connection";
import { jobOf, progressOf, readJob } from "../../api/jobs";
import type { Job, Progress } from "../../api/jobs";
import { follow } from "../../api/stream";
import { useStore } from "../../lib/store";
import { readText } from "@verify/json";
import { isTerminal } from "@verify/status";

/** Changes are shown at most this often, however fast they arrive. */
const SHOW_MS = 100;

export interface FollowedJob {
  readonly job: Job | undefined;
  readonly error: unknown;
  readonly reload: () => void;
}

export function useJob(id: string): FollowedJob {
  const [state, setState] = useState<{ id: string; job: Job | undefined; error: unknown }>({
    id,
    job: undefined,
    error: undefined,
  });
  const [round, setRound] = useState(0);
  const current = useStore(generation);
  const latest = useRef<Job | undefined>(undefined);
  useEffect(() => {
    const abort = new AbortController();
    let stop: (() => void) | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let update: string | undefined;
    let progress: Progress | undefined;
    const show = (job: Job): void => {
      latest.current = job;
      setState({ id, job, error: undefined });
    };
    const flush = (): void => {
      timer = undefined;
      // Only the latest change is parsed: the ones before it would never be seen.
      const next = update === undefined ? latest.current : jobOf(readText(update));
      update = undefined;
      if (!next) return;
      const isOver = isTerminal(next.status);
      show(progress && !isOver ? { ...next, progress } : next);
      // Steps and the queue are not part of a record, so they are read once more at the end.
      if (isOver) void readJob(id, abort.signal).then(show, () => undefined);
    };
    const load = async (): Promise<void> => {
      try {
        const job = await readJob(id, abort.signal);
        show(job);
        if (isTerminal(job.status)) return;
        stop = follow(`/api/v1/jobs/${encodeURIComponent(id)}/sse?progress=1&values=brief`, {
          onEvent: ({ event, data }) => {
            if (event === "progress") progress = progressOf(readText(data));
            else if (event === "job-update") update = data;
            timer ??= setTimeout(flush, SHOW_MS);
          },
          isDone: () => latest.current !== undefined && isTerminal(latest.current.status),
          onEnd: () => {
            if (timer !== undefined) return;
            void readJob(id, abort.signal).then(show, () => undefined);
          },
        });
      } catch (error) {
        if (!isAbort(error) && !abort.signal.aborted) {
          setState((before) => ({ id, job: before.id === id ? before.job : undefined, error }));
        }
      }
    };
    if (latest.current?.id !== id) latest.current = undefined;
    void load();
    return () => {
      abort.abort();
      stop?.();
      clearTimeout(timer);
    };
  }, [id, round, current]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  const isCurrent = state.id === id;
  return { job: isCurrent ? state.job : undefined, error: isCurrent ? state.error : undefined, reload };
}
