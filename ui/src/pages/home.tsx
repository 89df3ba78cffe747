// Is the venue healthy, what is it doing, and what needs somebody's attention?

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, newKey } from "../api/client";
import { invoke, listJobs } from "../api/jobs";
import type { Job, JobPage } from "../api/jobs";
import { capabilities, readHealth, readMetrics, readStats, readStatus, venueStatus } from "../api/venue";
import type { Health } from "../api/venue";
import { VerificationBadge } from "../components/badge";
import { Id, shorten } from "../components/copy";
import { Fact } from "../components/facts";
import { Icon } from "../components/icons";
import { JobLinks } from "../components/job_links";
import { JsonView } from "../components/json_view";
import { FieldProblem, Result } from "../components/states";
import { lookOf, StatusChip } from "../components/status";
import { Text } from "../components/text";
import { Time } from "../components/time";
import { useAction } from "../lib/action";
import { useInterval, useLoad } from "../lib/load";
import { rates, sample } from "../lib/rates";
import type { Sample } from "../lib/rates";
import { paths } from "../lib/router";
import { hourOf, most } from "../lib/stats";
import type { Minute } from "../lib/stats";
import { useStore } from "../lib/store";
import { duration } from "../lib/time";
import type { Value } from "@verify/value";
import { ChainVerification } from "../verify/verification";

const REFRESH_MS = 3000;
/** The statistics have one entry for each minute. */
const HOUR_REFRESH_MS = 15_000;
const LISTED = 6;

export function HomePage() {
  const status = useLoad(readStatus, []);
  const known = useStore(venueStatus);
  const name = (status.value ?? known)?.name;
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          <h1 tabIndex={-1}>{name === undefined ? "Venue" : <Text text={name} most={80} />}</h1>
          {status.value && (
            <div class="row wrap muted">
              <Id id={status.value.did} label="the venue's DID" />
              <span>Catena {status.value.version}</span>
            </div>
          )}
        </div>
      </header>
      <div class="grid">
        <HealthCard />
        <ThroughputCard />
        <AttentionCard />
        <RunningCard />
        <FirstJobCard />
        <StorageCard />
      </div>
    </>
  );
}

function HealthCard() {
  const health = useLoad(readHealth, []);
  useInterval(health.reload, REFRESH_MS);
  return (
    <section class="card">
      <h2>Health</h2>
      <Result loaded={health} what="the health of the venue">
        {(value) => <HealthFacts health={value} />}
      </Result>
    </section>
  );
}

const WORDS: Readonly<Record<string, string>> = {
  ok: "in order",
  full: "the disk is full",
  failed: "failed; the venue must be restarted",
  stopping: "stopping",
};

function HealthFacts({ health }: { health: Health }) {
  const { recovery } = health;
  const number = (name: string): number => Number(recovery.get(name) ?? 0);
  const isRecovering = recovery.get("status") === "running";
  return (
    <>
      <p class={`verdict ${health.isReady ? "good" : "bad"}`} role="status">
        <Icon name={health.isReady ? "check" : "warn"} />
        {health.isReady ? "The venue accepts work." : "The venue does not accept work."}
      </p>
      <dl class="facts narrow">
        {health.checks.map(([name, state]) => (
          <Fact key={name} name={name === "engine" ? "Engine" : name === "store" ? "Store" : name}>
            {WORDS[state] ?? state}
          </Fact>
        ))}
        <Fact name="Last start">
          <Time at={number("startedAt")} />
        </Fact>
        <Fact name="Recovery">
          {number("found") === 0
            ? "no job was interrupted"
            : `${number("found")} found, ${number("requeued")} continued, ${number("failed")} failed`}
          {isRecovering ? `, ${number("left")} left` : ` (${duration(number("durationMs"))})`}
        </Fact>
      </dl>
    </>
  );
}

/** Samples of the venue's counters since this page was opened. */
function useSamples(): readonly Sample[] | undefined {
  const samples = useRef<Sample[]>([]);
  const [, setRound] = useState(0);
  const [isDenied, setIsDenied] = useState(false);
  const read = (): void => {
    readMetrics().then(
      (metrics) => {
        samples.current = [...samples.current.slice(-59), sample(metrics, Date.now())];
        setRound((n) => n + 1);
      },
      (error: unknown) => {
        // A venue that cannot be reached is asked again.
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) setIsDenied(true);
      },
    );
  };
  useEffect(read, []);
  useInterval(() => {
    if (!isDenied) read();
  }, REFRESH_MS);
  return isDenied && samples.current.length === 0 ? undefined : samples.current;
}

function ThroughputCard() {
  const samples = useSamples();
  const { hasStats } = useStore(capabilities);
  const latest = samples?.[samples.length - 1];
  const rate = useMemo(() => rates(samples ?? []), [samples]);
  return (
    <section class="card">
      <h2>Throughput and latency</h2>
      {samples === undefined ? (
        <p class="muted">Only admins can read the figures of the whole venue.</p>
      ) : latest === undefined ? (
        <p class="muted">Measuring…</p>
      ) : (
        <>
          <div class="figures">
            <Figure title="jobs ended per second" value={rate.endedPerSecond.toFixed(1)} />
            <Figure title="running" value={latest.running.toLocaleString("en")} />
            <Figure title="queued" value={latest.queued.toLocaleString("en")} />
          </div>
          <Sparkline values={rate.ended} label="Jobs ended per second, since this page was opened" />
          <dl class="facts narrow">
            <Fact name="Invocations">
              {rate.invokeP50 === undefined
                ? "none since this page was opened"
                : `p50 ≤ ${duration(rate.invokeP50)}, p99 ≤ ${duration(rate.invokeP99 ?? 0)}`}
            </Fact>
            <Fact name="Since the start">
              {latest.invoked.toLocaleString("en")} created, {latest.ended.toLocaleString("en")}{" "}
              ended
            </Fact>
          </dl>
        </>
      )}
      {hasStats && <LastHour />}
    </section>
  );
}

function LastHour() {
  const stats = useLoad(readStats, []);
  useInterval(stats.reload, HOUR_REFRESH_MS);
  return (
    <Result loaded={stats} what="the statistics">
      {(value) => <HourCharts value={value} />}
    </Result>
  );
}

function HourCharts({ value }: { value: Value }) {
  const hour = useMemo(() => hourOf(value), [value]);
  const { minutes } = hour;
  const sum = (count: (minute: Minute) => number): string =>
    minutes.reduce((total, minute) => total + count(minute), 0).toLocaleString("en");
  const slowest = most(minutes.map(({ runningP99 }) => runningP99));
  const waited = most(minutes.map(({ waitingP99 }) => waitingP99));
  return (
    <section class="hour" aria-label="The last hour">
      <h3>{hour.isEveryone ? "The last hour" : "Your jobs in the last hour"}</h3>
      <div class="figures">
        <Figure title="started" value={sum(({ started }) => started)} />
        <Figure title="ended" value={sum(({ ended }) => ended)} />
        <Figure title="failed" value={sum(({ failed }) => failed)} />
        <Figure title="queued now" value={hour.queued.toLocaleString("en")} />
      </div>
      <Sparkline values={minutes.map(({ ended }) => ended)} label="Jobs ended by minute" />
      <Sparkline
        values={minutes.map(({ runningP99 }) => runningP99 ?? 0)}
        label="Running time by minute, 99th percentile"
      />
      <dl class="facts narrow">
        <Fact name="Running time, p99">
          {slowest === undefined ? "nothing ended" : `at most ${duration(slowest)}`}
        </Fact>
        <Fact name="Waiting time, p99">
          {waited === undefined ? "nothing started" : `at most ${duration(waited)}`}
        </Fact>
      </dl>
      <details>
        <summary>All figures</summary>
        <JsonView value={value} label="the statistics" />
      </details>
    </section>
  );
}

function Figure({ title, value }: { title: string; value: string }) {
  return (
    <p class="figure">
      <span class="figure-value">{value}</span>
      <span class="muted">{title}</span>
    </p>
  );
}

function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  if (values.length < 2) return null;
  const most = Math.max(1, ...values);
  const points = values
    .map((value, at) => `${(at / (values.length - 1)) * 300},${38 - (value / most) * 34}`)
    .join(" ");
  return (
    <figure class="trend">
      <figcaption class="muted small" aria-hidden="true">
        {label}
      </figcaption>
      <svg class="sparkline" viewBox="0 0 300 40" preserveAspectRatio="none" role="img" aria-label={label}>
        <polyline points={points} />
      </svg>
    </figure>
  );
}

const lists = (...statuses: string[]) => (signal: AbortSignal): Promise<JobPage[]> =>
  Promise.all(statuses.map((status) => listJobs({ status }, 0, LISTED, "newest", signal)));

function AttentionCard() {
  const loaded = useLoad(
    lists("INPUT_REQUIRED", "AUTH_REQUIRED", "FAILED", "REJECTED", "TIMEOUT"),
    [],
  );
  useInterval(loaded.reload, REFRESH_MS);
  return (
    <section class="card">
      <h2>Needs attention</h2>
      <Result loaded={loaded} what="jobs">
        {(pages) => {
          const waiting = pages.slice(0, 2).flatMap(({ items }) => items);
          const failed = pages.slice(2).flatMap(({ items }) => items);
          failed.sort((a, b) => b.updated - a.updated);
          const jobs = [...waiting, ...failed].slice(0, LISTED);
          if (jobs.length === 0) return <p class="muted">Nothing waits, and nothing has failed.</p>;
          return (
            <>
              <JobLinks jobs={jobs} />
              <p class="row wrap">
                <a href={paths.jobsWhere({ status: "FAILED" })}>Failed jobs</a>
                <a href={paths.jobsWhere({ status: "INPUT_REQUIRED" })}>Jobs that need input</a>
              </p>
            </>
          );
        }}
      </Result>
    </section>
  );
}

function RunningCard() {
  const loaded = useLoad(lists("STARTED", "PENDING"), []);
  useInterval(loaded.reload, REFRESH_MS);
  return (
    <section class="card">
      <h2>Running now</h2>
      <Result loaded={loaded} what="jobs">
        {([started, pending]) => (
          <>
            {started!.items.length === 0 ? (
              <p class="muted">No job is running.</p>
            ) : (
              <JobLinks jobs={started!.items} />
            )}
            <p class="row wrap">
              <a href={paths.jobsWhere({ status: "STARTED" })}>
                {started!.total.toLocaleString("en")} running
              </a>
              <a href={paths.jobsWhere({ status: "PENDING" })}>
                {pending!.total.toLocaleString("en")} queued
              </a>
            </p>
          </>
        )}
      </Result>
    </section>
  );
}

function FirstJobCard() {
  const [job, setJob] = useState<Job | undefined>(undefined);
  const { isBusy, problem, act } = useAction();
  const run = (): Promise<void> =>
    act(async () => {
      setJob(await invoke("test:echo", '{"text":"Hello, Catena"}', newKey(), { wait: 2000 }));
    });
  return (
    <section class="card">
      <h2>A first job</h2>
      <p class="muted">
        Runs the operation <code>test:echo</code> as a durable job, then verifies its records in
        this browser.
      </p>
      <button type="button" class="button primary" disabled={isBusy} onClick={() => void run()}>
        <Icon name="play" /> {job ? "Run another" : "Run it"}
      </button>
      <FieldProblem text={problem} />
      {job && <Proof key={job.id} job={job} />}
    </section>
  );
}

function Proof({ job }: { job: Job }) {
  const chain = useMemo(() => new ChainVerification(job.id), []);
  const verification = useStore(chain.state);
  const verify = (): void => void chain.run({ job: job.id, venue: job.venue });
  useEffect(() => {
    verify();
    return () => chain.close();
  }, []);
  return (
    <div class="proof" role="status">
      <p class="row wrap">
        <StatusChip status={job.status} />
        <a href={paths.job(job.id)}>
          Job <code>{shorten(job.id)}</code>
        </a>
        <span class="sr-only">{lookOf(job.status).word}</span>
      </p>
      <VerificationBadge job={job.id} verification={verification} onVerify={verify} />
    </div>
  );
}

function StorageCard() {
  const samples = useSamples();
  const latest = samples?.[samples.length - 1];
  const status = useStore(venueStatus);
  return (
    <section class="card">
      <h2>Storage</h2>
      {samples === undefined ? (
        <p class="muted">Only admins can read the figures of this venue.</p>
      ) : latest === undefined ? (
        <p class="muted">Measuring…</p>
      ) : (
        <dl class="facts narrow">
          {latest.diskBytes > 0 && (
            <Fact name="Size">{latest.diskBytes.toLocaleString("en")} bytes without large files</Fact>
          )}
          <Fact name="Journal">
            {latest.journalBytes.toLocaleString("en")} bytes written since the start
          </Fact>
          <Fact name="Syncs">
            {latest.syncs.toLocaleString("en")}
            {latest.syncs > 0 &&
              `, ${duration((latest.syncSeconds / latest.syncs) * 1000)} on average`}
          </Fact>
          <Fact name="Commits per sync">
            {latest.syncs > 0 ? (latest.entries / latest.syncs).toFixed(1) : "–"}
          </Fact>
          {status && (
            <Fact name="Catalogue">
              {status.operations} operations, {status.assets} assets
            </Fact>
          )}
        </dl>
      )}
    </section>
  );
}
