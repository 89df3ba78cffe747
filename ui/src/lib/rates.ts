// Rates and latencies from the venue's counters, by the difference of two samples.

/** The counters that the home page uses. */
export interface Sample {
  readonly at: number;
  readonly invoked: number;
  readonly ended: number;
  readonly running: number;
  readonly queued: number;
  readonly entries: number;
  readonly syncs: number;
  readonly syncSeconds: number;
  readonly journalBytes: number;
  /** 0 if the venue does not say. */
  readonly diskBytes: number;
  /** Cumulative number of invocations by the upper bound of their latency, in seconds. */
  readonly invokeBuckets: readonly (readonly [bound: number, count: number])[];
}

export function sample(metrics: ReadonlyMap<string, number>, at: number): Sample {
  const value = (name: string): number => metrics.get(name) ?? 0;
  let ended = 0;
  const buckets: [number, number][] = [];
  for (const [name, count] of metrics) {
    if (name.startsWith("catena_jobs_ended_total{")) ended += count;
    const isInvoke = name.includes('route="/api/v1/invoke"');
    if (isInvoke && name.startsWith("catena_http_request_seconds_bucket{")) {
      const bound = /le="([^"]+)"/.exec(name)?.[1];
      buckets.push([bound === "+Inf" ? Infinity : Number(bound), count]);
    }
  }
  buckets.sort(([a], [b]) => a - b);
  return {
    at,
    invoked: value("catena_jobs_invoked_total"),
    ended,
    running: value("catena_jobs_running"),
    queued: value("catena_jobs_queued"),
    entries: value("catena_store_entries_total"),
    syncs: value("catena_store_syncs_total"),
    syncSeconds: value("catena_store_sync_seconds_total"),
    journalBytes: value("catena_store_journal_bytes_total"),
    diskBytes: value("catena_store_disk_bytes"),
    invokeBuckets: buckets,
  };
}

export interface Rates {
  readonly endedPerSecond: number;
  /** Jobs ended per second between each two samples. */
  readonly ended: readonly number[];
  /** Upper bounds of latencies, in ms. Undefined if nothing was invoked between the samples. */
  readonly invokeP50: number | undefined;
  readonly invokeP99: number | undefined;
}

export function rates(samples: readonly Sample[]): Rates {
  const ended: number[] = [];
  for (let at = 1; at < samples.length; at++) {
    const before = samples[at - 1]!;
    const after = samples[at]!;
    // A counter that is lower than before belongs to a venue that was restarted.
    const count = Math.max(0, after.ended - before.ended);
    ended.push((count / Math.max(1, after.at - before.at)) * 1000);
  }
  const first = samples[0];
  const last = samples[samples.length - 1];
  return {
    endedPerSecond: ended[ended.length - 1] ?? 0,
    ended,
    invokeP50: first && last && quantile(first, last, 0.5),
    invokeP99: first && last && quantile(first, last, 0.99),
  };
}

/** The upper bound of the bucket in which a quantile lies, in ms. */
function quantile(first: Sample, last: Sample, part: number): number | undefined {
  const before = new Map(first.invokeBuckets);
  const counts = last.invokeBuckets.map(
    ([bound, count]) => [bound, count - (before.get(bound) ?? 0)] as const,
  );
  const total = counts[counts.length - 1]?.[1] ?? 0;
  if (total <= 0) return undefined;
  const bound = counts.find(([, count]) => count >= total * part)?.[0];
  return bound === undefined || bound === Infinity ? undefined : bound * 1000;
}
