// Tells that the venue cannot be reached and, once it is back, what changed meanwhile.

import { useEffect, useState } from "preact/hooks";
import { connection, dismissBack, retryNow } from "../api/connection";
import { listJobs } from "../api/jobs";
import { paths } from "../lib/router";
import { useStore } from "../lib/store";
import { duration } from "../lib/time";
import { Icon } from "./icons";
import { Elapsed } from "./time";

/** Jobs that are looked at to count what was missed. */
const MISSED_MAX = 1000;

export function ConnectionBanner() {
  const state = useStore(connection);
  const [missed, setMissed] = useState<string | undefined>(undefined);
  useEffect(() => {
    setMissed(undefined);
    if (state.state !== "back") return;
    const abort = new AbortController();
    listJobs({}, 0, MISSED_MAX, "newest", abort.signal).then(
      ({ items }) => {
        const changed = items.filter(({ updated }) => updated >= state.since).length;
        const most = changed === MISSED_MAX ? "At least " : "";
        setMissed(
          changed === 0
            ? "No job changed meanwhile."
            : `${most}${changed} ${changed === 1 ? "job" : "jobs"} changed meanwhile.`,
        );
      },
      () => undefined,
    );
    return () => abort.abort();
  }, [state]);
  if (state.state === "online") return null;
  if (state.state === "offline") {
    return (
      <div key="offline" class="banner bad" role="alert">
        <Icon name="warn" />
        <span>
          {state.isStopping ? "The venue is stopping" : "The venue cannot be reached"} (
          <Elapsed since={state.since} />
          ). What you see may be out of date; what you typed is kept.
        </span>
        <button type="button" class="button small" onClick={retryNow}>
          Try now
        </button>
      </div>
    );
  }
  return (
    <div key="back" class="banner good" role="status">
      <Icon name="check" />
      <span>
        Connected again after {duration(state.until - state.since)}. {missed}
      </span>
      <a class="button small" href={paths.jobs} onClick={dismissBack}>
        Show jobs
      </a>
      <button type="button" class="icon-button" aria-label="Dismiss" onClick={dismissBack}>
        <span aria-hidden="true">×</span>
      </button>
    </div>
  );
}
