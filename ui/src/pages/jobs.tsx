// All jobs that the caller may see.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { filterOf, listJobs } from "../api/jobs";
import type { JobFilter, ListedJob } from "../api/jobs";
import { capabilities } from "../api/venue";
import { operationName, shorten } from "../components/copy";
import { Icon } from "../components/icons";
import { Scatter } from "../components/scatter";
import { Empty, Loading, Problem } from "../components/states";
import { lookOf, StatusChip } from "../components/status";
import { Text } from "../components/text";
import { Duration, Elapsed, Time } from "../components/time";
import { VirtualRows } from "../components/virtual";
import { useInterval, useLoad } from "../lib/load";
import { useMedia } from "../lib/media";
import { location, navigate, paths } from "../lib/router";
import { onShortcut } from "../lib/shortcuts";
import { useStore } from "../lib/store";
import { visible } from "../lib/visible";
import { isTerminal, STATUSES } from "@verify/status";
import { BulkBar } from "./bulk";
import { useJobList } from "./job_list";

/** Jobs that the plot shows. */
const PLOTTED = 500;

export function JobsPage() {
  const { query } = useStore(location);
  const filter = filterOf(query);
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Jobs</h1>
      </header>
      <Presets filter={filter} />
      <Filters filter={filter} />
      <JobTable key={JSON.stringify(filter)} filter={filter} />
    </>
  );
}

function go(filter: JobFilter): void {
  const entries = Object.entries(filter).filter(([, value]) => value !== "");
  const query = new URLSearchParams(entries as [string, string][]).toString();
  navigate(query === "" ? paths.jobs : `${paths.jobs}?${query}`, { replace: true });
}

/** One preset per status, with the number of jobs that have it. */
function Presets({ filter }: { filter: JobFilter }) {
  const others = { ...filter };
  delete (others as { status?: string }).status;
  const counts = useLoad(
    (signal) =>
      Promise.all(
        STATUSES.map(async (status) => {
          const page = await listJobs({ ...others, status }, 0, 0, "newest", signal);
          return [status, page.total] as const;
        }),
      ),
    [others],
  );
  useInterval(counts.reload, 5000);
  const known = new Map(counts.value ?? []);
  return (
    <nav class="presets" aria-label="Jobs by status">
      <a
        href={hrefOf(others)}
        class="preset"
        aria-current={filter.status === undefined ? "page" : undefined}
      >
        All
      </a>
      {STATUSES.map((status) => {
        const { icon, word } = lookOf(status);
        const count = known.get(status);
        const isChosen = filter.status === status;
        if (count === 0 && !isChosen && !COMMON.includes(status)) return null;
        return (
          <a
            key={status}
            class="preset"
            href={hrefOf({ ...others, status })}
            aria-current={isChosen ? "page" : undefined}
          >
            <Icon name={icon} /> {word}
            {count !== undefined && <span class="count">{count.toLocaleString("en")}</span>}
          </a>
        );
      })}
    </nav>
  );
}

/** Presets that are shown even if no job has the status. */
const COMMON: readonly string[] = ["STARTED", "COMPLETE", "FAILED", "INPUT_REQUIRED"];

function hrefOf(filter: JobFilter): string {
  const query = new URLSearchParams(filter as Record<string, string>).toString();
  return query === "" ? paths.jobs : `${paths.jobs}?${query}`;
}

const FIELDS: readonly (readonly [keyof JobFilter, string, string])[] = [
  ["text", "Search", "ID, tag, error…"],
  ["op", "Operation", "test:echo"],
  ["tag", "Tag", "nightly"],
  ["since", "Since", "2026-01-31T09:00Z"],
  ["until", "Until", "2026-01-31T18:00Z"],
  ["parent", "Parent job", "0x…"],
  ["owner", "Owner", "did:… or *"],
];

/** Filters that are always shown. */
const MAIN: readonly (keyof JobFilter)[] = ["text", "op", "tag"];

/** Filters that this venue understands. They are in the URL, so that a view can be shared. */
function Filters({ filter }: { filter: JobFilter }) {
  const { listParameters } = useStore(capabilities);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => onShortcut("/", () => first.current?.focus()), []);
  const fields = FIELDS.filter(([name]) => listParameters.has(name));
  const main = fields.filter(([name]) => MAIN.includes(name));
  const more = fields.filter(([name]) => !MAIN.includes(name));
  const input = ([name, title, example]: (typeof FIELDS)[number]) => (
    <label key={name} class="filter">
      <span>{title}</span>
      <input
        ref={name === main[0]?.[0] ? first : null}
        name={name}
        type="text"
        placeholder={example}
        autoComplete="off"
        spellcheck={false}
        key={filter[name] ?? ""}
        defaultValue={filter[name] ?? ""}
      />
    </label>
  );
  const isActive = Object.keys(filter).some((name) => name !== "status");
  return (
    <form
      class="filters"
      role="search"
      aria-label="Filter jobs"
      onSubmit={(event) => {
        event.preventDefault();
        const data = new FormData(event.currentTarget);
        const entries = fields.map(([name]) => [name, String(data.get(name) ?? "").trim()]);
        const status = filter.status === undefined ? {} : { status: filter.status };
        go({ ...status, ...(Object.fromEntries(entries) as JobFilter) });
      }}
    >
      {main.map(input)}
      {more.length > 0 && (
        <details open={more.some(([name]) => filter[name] !== undefined)}>
          <summary>More filters</summary>
          <div class="filters">{more.map(input)}</div>
        </details>
      )}
      <button type="submit" class="button">
        <Icon name="search" /> Filter
      </button>
      {isActive && (
        <a class="button" href={filter.status ? hrefOf({ status: filter.status }) : paths.jobs}>
          Clear
        </a>
      )}
    </form>
  );
}

function JobTable({ filter }: { filter: JobFilter }) {
  const list = useJobList(filter);
  const isNarrow = useMedia("(max-width: 640px)");
  const { hasBulkControl } = useStore(capabilities);
  // The row that has the focus. Not a state: keys can arrive faster than the list is drawn.
  const chosen = useRef(-1);
  const [scrollTo, setScrollTo] = useState<{ index: number } | undefined>(undefined);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const { total } = list;
  const move = (step: number): void => {
    if (total === undefined || total === 0) return;
    chosen.current = Math.max(0, Math.min(total - 1, chosen.current + step));
    setScrollTo({ index: chosen.current });
    requestAnimationFrame(() => {
      const row = document.querySelector<HTMLElement>(`[data-row="${chosen.current}"]`);
      row?.focus({ preventScroll: true });
    });
  };
  useEffect(() => onShortcut("j", () => move(1)), [total]);
  useEffect(() => onShortcut("k", () => move(-1)), [total]);
  if (total === undefined) {
    return list.error === undefined ? (
      <Loading what="the jobs" />
    ) : (
      <Problem error={list.error} retry={list.reload} />
    );
  }
  if (total === 0) {
    const isFiltered = Object.keys(filter).length > 0;
    return isFiltered ? (
      <Empty title="No job matches.">
        <p>
          <a href={paths.jobs}>Show all jobs</a>
        </p>
      </Empty>
    ) : (
      <Empty title="There are no jobs yet.">
        <p>
          <a href={paths.operations}>Choose an operation to run</a>, or start with the example on
          the <a href={paths.home}>home page</a>.
        </p>
      </Empty>
    );
  }
  const toggle = (id: string): void =>
    setSelected((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  return (
    <>
      <Plot filter={filter} />
      <div class="list-head">
        <span role="status" class="muted">
          {list.isTotalAtLeast ? "At least " : ""}
          {total.toLocaleString("en")} {total === 1 ? "job" : "jobs"}
          {list.error !== undefined && " (not up to date)"}
        </span>
        {list.added > 0 && (
          <button type="button" class="button small" onClick={list.showAdded}>
            Show {list.added} new {list.added === 1 ? "job" : "jobs"}
          </button>
        )}
        {hasBulkControl && (
          <BulkBar
            filter={filter}
            total={total}
            isTotalAtLeast={list.isTotalAtLeast}
            selected={selected}
            onDone={() => setSelected(new Set())}
          />
        )}
      </div>
      <div class="job-list">
        <VirtualRows
          count={total}
          rowHeight={isNarrow ? 64 : 44}
          label="Jobs"
          head={
            <div class={`job-row job-head${hasBulkControl ? " selectable" : ""}`} aria-hidden="true">
              <span>Status</span>
              <span>Operation</span>
              <span>Job</span>
              <span>Created</span>
              <span class="right">Duration</span>
            </div>
          }
          onRange={list.ensure}
          onTop={list.setIsAtTop}
          scrollTo={scrollTo}
          row={(index) => (
            <JobRow
              key={list.at(index)?.id ?? `row-${index}`}
              index={index}
              job={list.at(index)}
              isSelectable={hasBulkControl}
              isSelected={selected.has(list.at(index)?.id ?? "")}
              onToggle={toggle}
              onFocus={(index) => {
                chosen.current = index;
              }}
            />
          )}
        />
      </div>
    </>
  );
}

function Plot({ filter }: { filter: JobFilter }) {
  const recent = useLoad(
    (signal) => listJobs(filter, 0, PLOTTED, "newest", signal),
    [filter],
  );
  useInterval(recent.reload, 10_000);
  // The same element is not compared again when only the list around it was drawn.
  return useMemo(
    () => (recent.value ? <Scatter jobs={recent.value.items} /> : null),
    [recent.value],
  );
}

function JobRow({
  index,
  job,
  isSelectable,
  isSelected,
  onToggle,
  onFocus,
}: {
  index: number;
  job: ListedJob | undefined;
  isSelectable: boolean;
  isSelected: boolean;
  onToggle: (id: string) => void;
  onFocus: (index: number) => void;
}) {
  if (!job) {
    return (
      <div class="job-item" role="listitem">
        <span class="job-row muted">…</span>
      </div>
    );
  }
  const hasEnded = isTerminal(job.status);
  return (
    <div class="job-item" role="listitem" aria-posinset={index + 1}>
      {isSelectable && (
        <input
          type="checkbox"
          class="job-select"
          checked={isSelected}
          aria-label={`Select job ${job.id}`}
          onChange={() => onToggle(job.id)}
        />
      )}
      <a
        class="job-row"
        href={paths.job(job.id)}
        data-row={index}
        data-job={job.id}
        title={visible(job.op)}
        onFocus={() => onFocus(index)}
      >
        <StatusChip status={job.status} />
        <span class="job-op">
          <Text text={operationName(job.op)} most={120} />
        </span>
        <code class="job-id">{shorten(job.id, 10, 4)}</code>
        <span class="muted job-created">
          <Time at={job.created} />
        </span>
        <span class="right job-took">
          {hasEnded ? (
            <Duration ms={job.updated - job.created} />
          ) : (
            <Elapsed since={job.created} />
          )}
        </span>
      </a>
    </div>
  );
}
