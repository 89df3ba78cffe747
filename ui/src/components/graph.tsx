// An orchestration from left to right. The list next to it has the same steps.

import { useMemo } from "preact/hooks";
import type { Step } from "../api/jobs";
import { BOX_WIDTH, layout } from "../lib/layout";
import { criticalPath } from "../lib/plan";
import type { PlanStep } from "../lib/plan";
import { absolute, duration } from "../lib/time";
import { visible } from "../lib/visible";
import { operationName } from "./copy";
import { Icon } from "./icons";
import { lookOf } from "./status";

const HEIGHT = 52;
/** With a third line, for where the step runs. */
const HEIGHT_REMOTE = 70;

export function Graph({
  plan,
  steps,
  onStep,
}: {
  plan: readonly PlanStep[];
  steps: readonly Step[];
  onStep: (index: number) => void;
}) {
  const isRemote = plan.some(({ index, venue }) => (venue ?? steps[index]?.venue) !== undefined);
  const boxHeight = isRemote ? HEIGHT_REMOTE : HEIGHT;
  const drawing = useMemo(() => layout(plan, boxHeight), [plan, boxHeight]);
  const critical = useMemo(() => criticalSteps(plan, steps), [plan, steps]);
  const { boxes, lines, width, height } = drawing;
  return (
    <div class="graph" tabIndex={0} role="group" aria-label="Graph of the steps">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
        {lines.map(({ step, path }) => (
          <path key={step} class="edge" d={path} />
        ))}
        {critical.slice(1).map((step, at) => (
          <path key={`critical-${step}`} class="edge critical" d={drawing.line(critical[at]!, step)} />
        ))}
        {boxes.map(({ step, x, y }) => (
          <StepBox
            key={step}
            planned={plan[step]!}
            step={steps[step]}
            x={x}
            y={y}
            height={boxHeight}
            isCritical={critical.includes(step)}
            onStep={onStep}
          />
        ))}
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
  const { icon, word, tone } = lookOf(status);
  const name = visible(planned.name ?? operationName(planned.op));
  const took =
    step?.started !== undefined && step.ended !== undefined
      ? ` · ${duration(Math.max(0, step.ended - step.started))}`
      : "";
  const venue = step?.venue ?? planned.venue;
  const place = venue === undefined ? "" : placeOf(venue, step?.asOf);
  const shownName = clip(`${planned.index} ${name}`, 22);
  const shownStatus = clip(`${word}${took}`, 23);
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
      <rect width={BOX_WIDTH} height={height} rx={6} />
      <rect class="step-tone" width={4} height={height - 2} x={1} y={1} rx={2} />
      <text class="step-name" x={14} y={21}>
        {shownName}
      </text>{" "}
      <g class="step-icon" transform="translate(13 29)">
        <Icon name={icon} />
      </g>
      <text class="step-status" x={31} y={40}>
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
