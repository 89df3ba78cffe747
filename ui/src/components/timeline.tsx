// A job's time as a bar, and the same as a list.

import { paths } from "../lib/router";
import { ACTIVITY_NAMES, totals } from "../lib/timeline";
import type { Timeline } from "../lib/timeline";
import { absolute, duration } from "../lib/time";

const WIDTH = 1000;
const BAR = 22;

export function TimelineView({ job, timeline }: { job: string; timeline: Timeline }) {
  const { from, to, spans, marks } = timeline;
  const length = Math.max(1, to - from);
  const x = (at: number): number => ((at - from) / length) * WIDTH;
  const sums = [...totals(timeline)];
  const described = sums
    .map(([activity, ms]) => `${ACTIVITY_NAMES[activity]} ${duration(ms)}`)
    .join(", ");
  if (to === from) {
    return (
      <p class="muted">
        Everything happened within one millisecond, at {absolute(from).slice(11, 23)}.
      </p>
    );
  }
  return (
    <div class="timeline">
      <svg
        viewBox={`0 0 ${WIDTH} ${BAR + 10}`}
        class="timeline-bar"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${duration(length)} in total: ${described}`}
      >
        {spans.map(({ activity, from, to, record }) => (
          <rect
            key={record}
            class={`span-${activity}`}
            x={x(from)}
            y={5}
            width={Math.max(1.5, x(to) - x(from))}
            height={BAR}
          >
            <title>
              {ACTIVITY_NAMES[activity]}: {duration(to - from)}
            </title>
          </rect>
        ))}
        {marks.slice(0, 400).map(({ at, record, label }) => (
          <line key={record} class="mark" x1={x(at)} x2={x(at)} y1={0} y2={BAR + 10}>
            <title>
              {label}: {absolute(at)}
            </title>
          </line>
        ))}
      </svg>
      <div class="timeline-ends muted">
        <span title={absolute(from)}>{absolute(from).slice(11, 23)}</span>
        <span title={absolute(to)}>{absolute(to).slice(11, 23)}</span>
      </div>
      <ul class="legend">
        {sums.map(([activity, ms]) => (
          <li key={activity}>
            <span class={`swatch span-${activity}`} aria-hidden="true" />
            {ACTIVITY_NAMES[activity]} <strong title={`${ms} ms`}>{duration(ms)}</strong>
          </li>
        ))}
      </ul>
      {marks.length > 0 && (
        <details class="timeline-events">
          <summary>
            {marks.length} {marks.length === 1 ? "event" : "events"}
          </summary>
          <ol>
            {marks.slice(0, 200).map(({ at, record, label }) => (
              <li key={record}>
                <a href={paths.record(job, record)}>record {record}</a>
                <span>{label}</span>
                <span class="muted" title={absolute(at)}>
                  +{duration(at - from)}
                </span>
              </li>
            ))}
          </ol>
        </details>
      )}
    </div>
  );
}
