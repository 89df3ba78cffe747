// Graphs as they are drawn: no line runs behind a box, and no two steps share a lane.

import { describe, expect, it } from "vitest";
import { BOX_WIDTH, layout } from "../src/lib/layout";
import type { Drawing } from "../src/lib/layout";
import type { PlanStep } from "../src/lib/plan";
import { Random } from "./histories";

const HEIGHT = 52;
const GRAPHS = 200;
/** Points of a curve that are looked at. */
const SAMPLES = 12;

interface Point {
  readonly x: number;
  readonly y: number;
}

const plan = (needs: readonly (readonly number[])[]): PlanStep[] =>
  needs.map((needs, index) => ({ index, name: undefined, op: "o", venue: undefined, needs }));

/** Any graph: few or many needs, of steps nearby or anywhere. */
function generate(random: Random): PlanStep[] {
  const [most, reach] = [1 + random.below(4), random.chance(50) ? 6 : 1000];
  const needs = Array.from({ length: 1 + random.below(60) }, (_, index) => {
    const count = index === 0 || random.chance(15) ? 0 : random.below(most + 1);
    const picked = Array.from({ length: count }, () => index - 1 - random.below(Math.min(index, reach)));
    return [...new Set(picked)].sort((a, b) => a - b);
  });
  return plan(needs);
}

/** The points of a path, one list for each curve and line of which it consists. */
function pieces(path: string): Point[][] {
  const found: Point[][] = [];
  let at: Point = { x: NaN, y: NaN };
  for (const [, command, text] of path.matchAll(/([A-Za-z])([^A-Za-z]*)/g)) {
    const n = text!.trim().split(/\s+/).map(Number);
    const start = at;
    if (command === "M") at = { x: n[0]!, y: n[1]! };
    else if (command === "h") found.push([start, (at = { x: start.x + n[0]!, y: start.y })]);
    else if (command === "C") {
      at = { x: n[4]!, y: n[5]! };
      const bezier = (t: number, a: number, b: number, c: number, d: number): number =>
        (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t ** 2 * c + t ** 3 * d;
      found.push(
        Array.from({ length: SAMPLES + 1 }, (_, i) => ({
          x: bezier(i / SAMPLES, start.x, n[0]!, n[2]!, at.x),
          y: bezier(i / SAMPLES, start.y, n[1]!, n[3]!, at.y),
        })),
      );
    } else throw new Error(`not a command of these paths: ${command}`);
  }
  return found;
}

/** Whether the line between two points has a point inside a box; its border is outside. */
function crosses(from: Point, to: Point, { x, y }: Point): boolean {
  // Most are far away.
  if (Math.max(from.x, to.x) <= x || Math.min(from.x, to.x) >= x + BOX_WIDTH) return false;
  // Liang and Barsky: the part of the line that is between the sides, then between top and bottom.
  let [enter, leave] = [0, 1];
  for (const [start, delta, least, most] of [
    [from.x, to.x - from.x, x, x + BOX_WIDTH],
    [from.y, to.y - from.y, y, y + HEIGHT],
  ] as const) {
    if (delta === 0) {
      if (start <= least || start >= most) return false;
      continue;
    }
    const [a, b] = [(least - start) / delta, (most - start) / delta];
    enter = Math.max(enter, Math.min(a, b));
    leave = Math.min(leave, Math.max(a, b));
  }
  return enter < leave;
}

/** The boxes that a path runs behind. */
function behind({ boxes }: Drawing, path: string): number[] {
  const parts = pieces(path).flatMap((points) => points.slice(1).map((to, at) => [points[at]!, to] as const));
  return boxes.filter((box) => parts.some(([from, to]) => crosses(from, to, box))).map(({ step }) => step);
}

/** What is wrong with the drawing of a graph. */
function problems(steps: readonly PlanStep[]): string[] {
  const found: string[] = [];
  const drawing = layout(steps, HEIGHT);
  const { boxes, lines, width, height } = drawing;
  const isInside = ({ x, y }: Point): boolean => x >= 0 && y >= 0 && x <= width && y <= height;
  for (const { step, x, y } of boxes) {
    const isWhole = isInside({ x, y }) && isInside({ x: x + BOX_WIDTH, y: y + HEIGHT });
    if (!isWhole) found.push(`step ${step} is cut off`);
    for (const other of boxes) {
      const isOver = other.step < step && other.x === x && Math.abs(other.y - y) <= HEIGHT;
      if (isOver) found.push(`step ${step} is drawn over ${other.step}`);
    }
  }
  if (boxes.some(({ step }, at) => step !== at) || boxes.length !== steps.length) found.push("steps are missing");
  // What is drawn for all lines of a step.
  const owner = new Map<string, number>();
  for (const { step, path } of lines) {
    for (const box of behind(drawing, path)) found.push(`a line of step ${step} runs behind ${box}`);
    for (const [start, end, ...more] of pieces(path)) {
      if (![start!, end!, ...more].every(isInside)) found.push(`a line of step ${step} is cut off`);
      if (more.length > 0) continue;
      const lane = `${start!.x} ${start!.y}`;
      if ((owner.get(lane) ?? step) !== step) found.push(`steps ${step} and ${owner.get(lane)} share a lane`);
      owner.set(lane, step);
    }
  }
  // Each line by itself leads from its step to the one that needs it.
  for (const { index, needs } of steps) {
    for (const need of needs) {
      const path = drawing.line(need, index);
      for (const box of behind(drawing, path)) found.push(`the line from ${need} to ${index} runs behind ${box}`);
      const points = pieces(path).flat();
      const [from, to] = [boxes[need]!, boxes[index]!];
      const isJoined =
        points[0]!.x === from.x + BOX_WIDTH &&
        points[0]!.y === from.y + HEIGHT / 2 &&
        points.at(-1)!.x === to.x &&
        points.at(-1)!.y === to.y + HEIGHT / 2;
      if (!isJoined) found.push(`the line from ${need} to ${index} leads elsewhere`);
    }
  }
  return found;
}

describe("the drawing of a graph", () => {
  it("has no line behind a box, whatever the graph is", () => {
    for (let seed = 0; seed < GRAPHS; seed++) {
      expect(problems(generate(new Random(seed))), `seed ${seed}`).toEqual([]);
    }
  });

  it.each<[string, number[][]]>([
    ["nothing", []],
    ["one step", [[]]],
    ["a line past a column with one box", [[], [0], [0, 1]]],
    ["a line past many columns", [[], [0], [1], [2], [3], [0, 4]]],
    ["every step needs all before it", Array.from({ length: 20 }, (_, n) => Array.from({ length: n }, (_, i) => i))],
    ["one step for all", [[], ...Array.from({ length: 30 }, () => [0]), Array.from({ length: 30 }, (_, i) => i + 1)]],
  ])("has no line behind a box: %s", (_, needs) => expect(problems(plan(needs))).toEqual([]));

  it("draws a chain as a straight line", () => {
    const { boxes } = layout(plan([[], [0], [1], [2]]), HEIGHT);
    expect(new Set(boxes.map(({ y }) => y)).size).toBe(1);
  });

  it("keeps branches apart that have nothing to do with each other", () => {
    // Two chains, whose steps alternate.
    const { boxes } = layout(plan([[], [], [0], [1], [2], [3]]), HEIGHT);
    const rows = (start: number): number[] => boxes.filter(({ step }) => step % 2 === start).map(({ y }) => y);
    expect([new Set(rows(0)).size, new Set(rows(1)).size]).toEqual([1, 1]);
  });

  it("is bounded for the largest graph: 1,000 steps in a row, each of which also needs one far before it", () => {
    const needs = Array.from({ length: 1000 }, (_, n) => (n === 0 ? [] : [...new Set([n >> 1, n - 1])].filter((i) => i < n)));
    const started = performance.now();
    const { boxes, lines } = layout(plan(needs), HEIGHT);
    console.log(`layout of 1,000 steps with 250,000 lanes: ${(performance.now() - started).toFixed(0)} ms`);
    expect(boxes).toHaveLength(1000);
    expect(lines.length).toBeLessThan(1000);
  });
});
