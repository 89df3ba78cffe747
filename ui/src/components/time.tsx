// Times: relative in the text, absolute on hover.

import { useNow } from "../lib/load";
import { absolute, duration, relative } from "../lib/time";

export function Time({ at }: { at: number }) {
  const now = useNow(Math.abs(Date.now() - at) < 3_600_000 ? 5000 : 60_000);
  const isoTime = Math.abs(at) <= 8.64e15 ? new Date(at).toISOString() : undefined;
  return (
    <time dateTime={isoTime} title={`${absolute(at)} (${at})`}>
      {relative(at, now)}
    </time>
  );
}

export function Duration({ ms }: { ms: number }) {
  return <span title={`${ms} ms`}>{duration(ms)}</span>;
}

/** The time since a moment, counting while the page is open. */
export function Elapsed({ since }: { since: number }) {
  const now = useNow(1000);
  return <span title={`since ${absolute(since)}`}>{duration(Math.max(0, now - since))}</span>;
}
