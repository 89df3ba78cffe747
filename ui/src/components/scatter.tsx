// Jobs by time and duration: outliers are seen at a glance. The list below it has the same jobs.
//
// Hundreds of jobs are a few elements: one for each would cost more than everything else on the page
// whenever the plot is drawn again, and that while somebody types.

import { useMemo, useState } from "preact/hooks";
import type { ListedJob } from "../api/jobs";
import { navigate, paths } from "../lib/router";
import { absolute, duration } from "../lib/time";
import { visible } from "../lib/visible";
import { isTerminal } from "@verify/status";
import { lookOf } from "./status";

type Tone = ReturnType<typeof lookOf>["tone"];

/** A job and its position in the plot. */
interface Dot {
  readonly job: ListedJob;
  readonly tone: Tone;
  readonly x: number;
  readonly y: number;
}

const WIDTH = 1000;
const HEIGHT = 150;
const LEFT = 76;
const BOTTOM = 20;
/** How far from a dot the pointer may be. */
const REACH = 8;
/** Elements for the dots of one look. Dots of one element do not add up, those of different ones do. */
const LAYERS = 4;

/** Positions on a logarithmic scale from 1 ms, because durations differ by orders of magnitude. */
const scale = (ms: number): number => Math.log10(Math.max(1, ms));

/** The powers of ten of a millisecond, rounded to what people say. */
const LABELS = ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s", "17 min", "3 h", "28 h", "12 d"];

export function Scatter({ jobs }: { jobs: readonly ListedJob[] }) {
  const [chosen, setChosen] = useState<Dot | undefined>(undefined);
  const ended = useMemo(() => jobs.filter(({ status }) => isTerminal(status)), [jobs]);
  // Not drawn again when another dot is pointed at.
  const { dots, longest, drawing } = useMemo(() => draw(ended), [ended]);
  if (ended.length < 3) return null;
  const shown = chosen && dots.find(({ job }) => job.id === chosen.job.id);
  return (
    <figure class="scatter">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`${ended.length} ended jobs by time and duration; the longest took ${duration(longest)}`}
        onPointerMove={(event) => setChosen(dotAt(dots, event))}
        onPointerLeave={() => setChosen(undefined)}
        onClick={(event) => {
          const dot = dotAt(dots, event);
          if (dot) navigate(paths.job(dot.job.id));
        }}
      >
        {drawing}
        {shown && (
          <path class={`dot chosen tone-${shown.tone}`} data-job={shown.job.id} d={shape(shown)}>
            <title>{titleOf(shown.job)}</title>
          </path>
        )}
      </svg>
    </figure>
  );
}

/** The positions of ended jobs, and everything of the plot that does not depend on the pointer. */
function draw(ended: readonly ListedJob[]) {
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
  const dots = ended.map((job): Dot => {
    const { tone } = lookOf(job.status);
    return { job, tone, x: x(job.created), y: y(job.updated - job.created) };
  });
  const drawing = (
    <>
      {lines.map((power) => (
        <g key={power} class="axis">
          <line x1={LEFT} x2={WIDTH} y1={y(10 ** power)} y2={y(10 ** power)} />
          <text x={LEFT - 8} y={y(10 ** power) + 4} text-anchor="end">
            {LABELS[power] ?? `10^${power} ms`}
          </text>
        </g>
      ))}
      {layersOf(dots).map(([tone, layer, members]) => (
        <path
          key={`${tone} ${layer}`}
          class={`dot tone-${tone}`}
          data-tone={tone}
          data-dots={members.length}
          d={members.map(shape).join("")}
        />
      ))}
      <g class="axis">
        <text x={LEFT} y={HEIGHT - 4}>
          {absolute(from).slice(5, 19)}
        </text>
        <text x={WIDTH - 2} y={HEIGHT - 4} text-anchor="end">
          {absolute(to).slice(5, 19)}
        </text>
      </g>
    </>
  );
  return { dots, longest, drawing };
}

/** Dots by look, and those of one look in turn by layer. Neighbours overlap most, so they are in different layers. */
function layersOf(dots: readonly Dot[]): (readonly [Tone, number, readonly Dot[]])[] {
  const tones = [...new Set(dots.map(({ tone }) => tone))];
  return tones.flatMap((tone) => {
    const alike = dots.filter((dot) => dot.tone === tone);
    return Array.from({ length: Math.min(LAYERS, alike.length) }, (_, layer) => {
      return [tone, layer, alike.filter((_, at) => at % LAYERS === layer)] as const;
    });
  });
}

/** Shape and colour by outcome, so that neither is needed alone. */
function shape({ tone, x, y }: Dot): string {
  const at = `${x.toFixed(1)} ${y.toFixed(1)}`;
  if (tone === "good") return `M${at}m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z`;
  return tone === "bad" ? `M${at}m-5 4l5-9l5 9Z` : `M${at}m-4-4h8v8h-8Z`;
}

function titleOf({ status, created, updated, op }: ListedJob): string {
  return `${lookOf(status).word}, ${duration(updated - created)}: ${visible(op.slice(0, 200))}`;
}

/** The dot next to the pointer. */
function dotAt(
  dots: readonly Dot[],
  { currentTarget, clientX, clientY }: { currentTarget: SVGSVGElement; clientX: number; clientY: number },
): Dot | undefined {
  const matrix = currentTarget.getScreenCTM();
  if (!matrix) return undefined;
  const at = new DOMPoint(clientX, clientY).matrixTransform(matrix.inverse());
  const distance = (dot: Dot): number => Math.hypot(dot.x - at.x, dot.y - at.y);
  const nearest = dots.reduce<Dot | undefined>(
    (best, dot) => (best === undefined || distance(dot) < distance(best) ? dot : best),
    undefined,
  );
  return nearest && distance(nearest) <= REACH ? nearest : undefined;
}
