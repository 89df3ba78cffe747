// An orchestration from left to right. The list next to it has the same steps.

import { useMemo } from "preact/hooks";
import type { Step } from "../api/jobs";
import { criticalPath, layout } from "../lib/plan";
import type { PlanStep } from "../lib/plan";
import { absolute, duration } from "../lib/time";
import { visible } from "../lib/visible";
import { operationName } from "./copy";
import { lookOf } from "./status";

const WIDTH = 176;
const HEIGHT = 52;
/** With a third line, for where the step runs. */
const HEIGHT_REMOTE = 70;
const GAP_X = 56;
const GAP_Y = 18;

export function Graph({
  plan,
  steps,
  onStep,
}: {
  plan: readonly PlanStep[];
  steps: readonly Step[];
  onStep: (index: number) => void;
}) {
  const places = useMemo(() => layout(plan), [plan]);
  const at = useMemo(() => new Map(places.map((place) => [place.step, place])), [places]);
  const critical = useMemo(() => criticalSteps(plan, steps), [plan, steps]);
  const isRemote = plan.some(({ index, venue }) => (venue ?? steps[index]?.venue) !== undefined);
  const boxHeight = isRemote ? HEIGHT_REMOTE : HEIGHT;
  const columns = places.reduce((most, { column }) => Math.max(most, column + 1), 0);
  const rows = places.reduce((most, { row }) => Math.max(most, row + 1), 0);
  const x = (column: number): number => 4 + column * (WIDTH + GAP_X);
  const y = (row: number): number => 4 + row * (boxHeight + GAP_Y);
  const width = x(columns - 1) + WIDTH + 4;
  const height = y(rows - 1) + boxHeight + 4;
  return (
    <div class="graph" tabIndex={0} role="group" aria-label="Graph of the steps">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
        {plan.flatMap(({ index, needs }) =>
          needs.map((need) => {
            const from = at.get(need);
            const to = at.get(index);
            if (!from || !to) return null;
            const isCritical = isOn(critical, need, index);
            const x1 = x(from.column) + WIDTH;
            const y1 = y(from.row) + boxHeight / 2;
            const x2 = x(to.column);
            const y2 = y(to.row) + boxHeight / 2;
            const bend = (x2 - x1) / 2;
            return (
              <path
                key={`${need}-${index}`}
                class={isCritical ? "edge critical" : "edge"}
                d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}
              />
            );
          }),
        )}
        {plan.map((planned) => {
          const place = at.get(planned.index);
          if (!place) return null;
          const step = steps[planned.index];
          return (
            <StepBox
              key={planned.index}
              planned={planned}
              step={step}
              x={x(place.column)}
              y={y(place.row)}
              height={boxHeight}
              isCritical={critical.includes(planned.index)}
              onStep={onStep}
            />
          );
        })}
      </svg>
    </div>
  );
}

function StepBox({
  planned,
  step,
  x,
  y,
  height,
  isCritical,
  onStep,
}: {
  planned: PlanStep;
  step: Step | undefined;
  x: number;
  y: number;
  height: number;
  isCritical: boolean;
  onStep: (index: number) => void;
}) {
  const status = step?.status ?? "WAITING";
  const { word, tone } = lookOf(status);
  const name = visible(planned.name ?? operationName(planned.op));
  const took =
    step?.started !== undefined && step.ended !== undefined
      ? ` · ${duration(Math.max(0, step.ended - step.started))}`
      : "";
  const venue = step?.venue ?? planned.venue;
  const place = venue === undefined ? "" : placeOf(venue, step?.asOf);
  const shownName = clip(`${planned.index} ${name}`, 22);
  const shownStatus = clip(`${word}${took}`, 26);
  return (
    <g
      class={`step tone-${tone}${isCritical ? " critical" : ""}`}
      transform={`translate(${x} ${y})`}
      role="button"
      tabIndex={0}
      aria-label={`${shownName} ${shownStatus} ${place}`.trim()}
      data-step={planned.index}
      data-status={status}
      onClick={() => onStep(planned.index)}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onStep(planned.index);
      }}
    >
      <rect width={WIDTH} height={height} rx={6} />
      <rect class="step-tone" width={4} height={height - 2} x={1} y={1} rx={2} />
      <text class="step-name" x={14} y={21}>
        {shownName}
      </text>{" "}
      <text class="step-status" x={14} y={40}>
        {shownStatus}
      </text>{" "}
      {place !== "" && (
        <text class="step-place" x={14} y={58}>
          {place}
        </text>
      )}
    </g>
  );
}

/** Where a step runs and, while nothing here proves how it ended, when it was last seen. */
function placeOf(venue: string, asOf: number | undefined): string {
  const host = visible(venue.replace(/^https?:\/\//, "").replace(/\/$/, ""));
  if (asOf === undefined) return clip(`on ${host}`, 26);
  return `${clip(`on ${host}`, 12)}, as of ${absolute(asOf).slice(11, 16)}`;
}

const clip = (text: string, most: number): string => {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
};

/** The critical path: by duration once the steps have ended, else by the number of steps. */
export function criticalSteps(plan: readonly PlanStep[], steps: readonly Step[]): number[] {
  const took = (index: number): number | undefined => {
    const step = steps[index];
    return step?.started === undefined || step.ended === undefined
      ? undefined
      : step.ended - step.started;
  };
  const isKnown = plan.every(({ index }) => took(index) !== undefined);
  // One more millisecond per step, so that instant steps count too.
  return criticalPath(plan, (index) => (isKnown ? (took(index) ?? 0) + 1 : 1));
}

const isOn = (path: readonly number[], from: number, to: number): boolean => {
  const at = path.indexOf(to);
  return at > 0 && path[at - 1] === from;
};
