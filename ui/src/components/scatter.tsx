// Jobs by time and duration: outliers are seen at a glance. The list below it has the same jobs.

import { useMemo } from "preact/hooks";
import type { ListedJob } from "../api/jobs";
import { navigate, paths } from "../lib/router";
import { absolute, duration } from "../lib/time";
import { visible } from "../lib/visible";
import { isTerminal } from "@verify/status";
import { lookOf } from "./status";

const WIDTH = 1000;
const HEIGHT = 150;
const LEFT = 76;
const BOTTOM = 20;

/** Positions on a logarithmic scale from 1 ms, because durations differ by orders of magnitude. */
const scale = (ms: number): number => Math.log10(Math.max(1, ms));

/** The powers of ten of a millisecond, rounded to what people say. */
const LABELS = ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s", "17 min", "3 h", "28 h", "12 d"];

export function Scatter({ jobs }: { jobs: readonly ListedJob[] }) {
  const ended = useMemo(() => jobs.filter(({ status }) => isTerminal(status)), [jobs]);
  if (ended.length < 3) return null;
  const from = ended.reduce((least, { created }) => Math.min(least, created), Infinity);
  const to = ended.reduce((most, { created }) => Math.max(most, created), -Infinity);
  const longest = ended.reduce((most, job) => Math.max(most, job.updated - job.created), 1);
  const top = Math.max(1, Math.ceil(scale(longest)));
  const x = (at: number): number =>
    LEFT + 8 + ((at - from) / Math.max(1, to - from)) * (WIDTH - LEFT - 16);
  const y = (ms: number): number => HEIGHT - BOTTOM - 4 - (scale(ms) / top) * (HEIGHT - BOTTOM - 12);
  const lines = Array.from({ length: top + 1 }, (_, power) => power).filter(
    (power) => top <= 4 || power % 2 === top % 2,
  );
  return (
    <figure class="scatter">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`${ended.length} ended jobs by time and duration; the longest took ${duration(longest)}`}
        onClick={(event) => {
          const id = event.target instanceof Element && event.target.getAttribute("data-job");
          if (id) navigate(paths.job(id));
        }}
      >
        {lines.map((power) => (
          <g key={power} class="axis">
            <line x1={LEFT} x2={WIDTH} y1={y(10 ** power)} y2={y(10 ** power)} />
            <text x={LEFT - 8} y={y(10 ** power) + 4} text-anchor="end">
              {LABELS[power] ?? `10^${power} ms`}
            </text>
          </g>
        ))}
        {ended.map((job) => (
          <Dot key={job.id} job={job} x={x(job.created)} y={y(job.updated - job.created)} />
        ))}
        <g class="axis">
          <text x={LEFT} y={HEIGHT - 4}>
            {absolute(from).slice(5, 19)}
          </text>
          <text x={WIDTH - 2} y={HEIGHT - 4} text-anchor="end">
            {absolute(to).slice(5, 19)}
          </text>
        </g>
      </svg>
    </figure>
  );
}

/** Shape and colour by outcome, so that neither is needed alone. */
function Dot({ job, x, y }: { job: ListedJob; x: number; y: number }) {
  const { word, tone } = lookOf(job.status);
  const title = `${word}, ${duration(job.updated - job.created)}: ${visible(job.op.slice(0, 200))}`;
  const props = { class: `dot tone-${tone}`, "data-job": job.id };
  if (tone === "good") {
    return (
      <circle {...props} cx={x} cy={y} r={4}>
        <title>{title}</title>
      </circle>
    );
  }
  const path =
    tone === "bad"
      ? `M${x - 5} ${y + 4}L${x} ${y - 5}L${x + 5} ${y + 4}Z`
      : `M${x - 4} ${y - 4}h8v8h-8Z`;
  return (
    <path {...props} d={path}>
      <title>{title}</title>
    </path>
  );
}
