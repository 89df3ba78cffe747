// Where the steps of an orchestration are drawn, and the lines between them. Steps stand in columns, left
// to right. A line that passes a column has a lane there, a place of its own between the boxes, so that no
// line runs behind a box that it does not belong to. All lines of a step share its lanes, which bounds
// their number: at most one per step and column.

import { columns } from "./plan";
import type { PlanStep } from "./plan";

/** The height of a box depends on what is written in it; everything is in CSS pixels. */
export const BOX_WIDTH = 176;
const GAP_X = 56;
const GAP_BOXES = 18;
const GAP_LANE_TO_BOX = 14;
const GAP_LANES = 8;
const MARGIN = 4;

/** How often the columns are ordered again, from left to right and back, so that fewer lines cross. */
const SWEEPS = 4;
/** How much more a lane insists on being straight than a box on being in the middle of its neighbours. */
const LANE_WEIGHT = 8;

/** A box, or a place in a column that lines of a step pass through. */
interface Item {
  readonly step: number;
  readonly isLane: boolean;
  /** Items of the column to the left, and of the one to the right, that a line connects with this one. */
  readonly before: Item[];
  readonly after: Item[];
  readonly column: number;
  /** The position in its column. */
  position: number;
  /** The position that would be best for it. */
  wish: number;
  /** The middle. */
  y: number;
}

export interface Box {
  readonly step: number;
  readonly x: number;
  readonly y: number;
}

export interface Drawing {
  readonly boxes: readonly Box[];
  /** For each step with lines to others: all of them, as data of an SVG path. */
  readonly lines: readonly { readonly step: number; readonly path: string }[];
  /** The line from a step to one that needs it, as data of an SVG path. */
  readonly line: (from: number, to: number) => string;
  readonly width: number;
  readonly height: number;
}

export function layout(steps: readonly PlanStep[], boxHeight: number): Drawing {
  const items = itemsOf(steps);
  order(items.columns);
  align(items.columns, boxHeight);
  const all = items.columns.flat();
  const top = all.reduce((least, item) => Math.min(least, topOf(item, boxHeight)), Infinity);
  for (const item of all) item.y = Math.round(item.y - top) + MARGIN;
  const bottom = all.reduce((most, item) => Math.max(most, topOf(item, boxHeight) + heightOf(item, boxHeight)), 0);
  const left = (item: Item): number => MARGIN + item.column * (BOX_WIDTH + GAP_X);
  const link = (from: Item, to: Item): string => {
    const start = left(from) + BOX_WIDTH;
    const end = left(to);
    const middle = (start + end) / 2;
    return `M${start} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${end} ${to.y}${to.isLane ? `h${BOX_WIDTH}` : ""}`;
  };
  return {
    boxes: items.boxes.map((item) => ({ step: item.step, x: left(item), y: topOf(item, boxHeight) })),
    lines: items.boxes.flatMap((box) => {
      const path = [box, ...(items.lanes.get(box.step) ?? [])]
        .flatMap((item) => item.after.map((next) => link(item, next)))
        .join("");
      return path === "" ? [] : [{ step: box.step, path }];
    }),
    line: (from, to) => {
      const [start, end] = [items.boxes[from]!, items.boxes[to]!];
      const lanes = (items.lanes.get(from) ?? []).slice(0, end.column - start.column - 1);
      const stops = [start, ...lanes, end];
      return stops.slice(1).map((stop, at) => link(stops[at]!, stop)).join("");
    },
    width: Math.max(0, items.columns.length * (BOX_WIDTH + GAP_X) - GAP_X) + 2 * MARGIN,
    height: bottom + MARGIN,
  };
}

interface Items {
  readonly columns: Item[][];
  /** By index of the step. */
  readonly boxes: Item[];
  /** The lanes of a step, from left to right. */
  readonly lanes: Map<number, Item[]>;
}

function itemsOf(steps: readonly PlanStep[]): Items {
  const column = columns(steps);
  const items: Items = { columns: [], boxes: [], lanes: new Map() };
  const add = (step: number, at: number, isLane: boolean, before: Item[]): Item => {
    const stack = (items.columns[at] ??= []);
    const item = { step, isLane, before, after: [], column: at, position: stack.length, wish: 0, y: 0 };
    stack.push(item);
    for (const one of before) one.after.push(item);
    return item;
  };
  const furthest: number[] = [];
  for (const { index, needs } of steps) {
    for (const need of needs) furthest[need] = Math.max(furthest[need] ?? 0, column[index]!);
  }
  // Lanes of a column are added before the boxes of the next one, which are connected with them.
  const byColumn: PlanStep[][] = [];
  for (const step of steps) (byColumn[column[step.index]!] ??= []).push(step);
  byColumn.forEach((stack, at) => {
    for (const { index, needs } of stack) {
      const before = needs.map((need) => items.lanes.get(need)?.[at - column[need]! - 2] ?? items.boxes[need]!);
      items.boxes[index] = add(index, at, false, before);
    }
    for (const step of steps) {
      const from = column[step.index]!;
      if (from >= at || (furthest[step.index] ?? 0) <= at) continue;
      const lanes = items.lanes.get(step.index) ?? [];
      lanes.push(add(step.index, at, true, [lanes.at(-1) ?? items.boxes[step.index]!]));
      items.lanes.set(step.index, lanes);
    }
  });
  return items;
}

/** Orders each column by the mean position of what its items are connected with, forth and back. */
function order(stacks: readonly Item[][]): void {
  let best = stacks.map((stack) => [...stack]);
  let fewest = Infinity;
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isForth = sweep % 2 === 0;
    for (const stack of isForth ? stacks : [...stacks].reverse()) {
      for (const item of stack) {
        const near = isForth ? item.before : item.after;
        item.wish = near.length === 0 ? item.position : mean(near, ({ position }) => position);
      }
      stack.sort((a, b) => a.wish - b.wish || a.position - b.position);
      stack.forEach((item, position) => (item.position = position));
    }
    const count = stacks.reduce((sum, stack) => sum + crossings(stack), 0);
    if (count >= fewest) continue;
    fewest = count;
    best = stacks.map((stack) => [...stack]);
  }
  stacks.forEach((stack, at) => {
    stack.splice(0, stack.length, ...best[at]!);
    stack.forEach((item, position) => (item.position = position));
  });
}

/** How many lines cross on the way to the items of a column: inversions, counted with a Fenwick tree. */
function crossings(stack: readonly Item[]): number {
  const ends = stack.flatMap(({ before }) => before.map(({ position }) => position).sort((a, b) => a - b));
  const size = ends.reduce((most, end) => Math.max(most, end + 1), 0);
  const tree = new Uint32Array(size + 1);
  let count = 0;
  ends.forEach((end, seen) => {
    let atMost = 0;
    for (let at = end + 1; at > 0; at -= at & -at) atMost += tree[at]!;
    count += seen - atMost;
    for (let at = end + 1; at <= size; at += at & -at) tree[at]!++;
  });
  return count;
}

/** Gives each item a height near those that it is connected with; the order in a column stays. */
function align(stacks: readonly Item[][], boxHeight: number): void {
  for (const stack of stacks) place(stack, boxHeight, ({ before }) => before);
  for (const stack of [...stacks].reverse()) place(stack, boxHeight, ({ after }) => after);
  for (const stack of stacks) place(stack, boxHeight, ({ before }) => before);
}

/**
 * Places the items of a column as near to the mean of their neighbours as the gaps between them allow, in
 * the sense of least squares: neighbours that would overlap are moved together, as one block.
 */
function place(stack: readonly Item[], boxHeight: number, neighbours: (item: Item) => readonly Item[]): void {
  interface Block {
    /** The sum of wishes, each less the offset of its item, and the sum of weights. */
    sum: number;
    weight: number;
    items: number;
  }
  const offsets: number[] = [];
  const blocks: Block[] = [];
  const wish = ({ sum, weight }: Block): number => sum / weight;
  stack.forEach((item, at) => {
    const last = stack[at - 1];
    offsets[at] = last ? offsets[at - 1]! + distance(last, item, boxHeight) : 0;
    const near = neighbours(item);
    const y = near.length === 0 ? item.y : mean(near, ({ y }) => y);
    const weight = item.isLane ? LANE_WEIGHT : 1;
    let block = { sum: (y - offsets[at]!) * weight, weight, items: 1 };
    for (let before = blocks.at(-1); before && wish(before) > wish(block); before = blocks.at(-1)) {
      blocks.pop();
      block = {
        sum: before.sum + block.sum,
        weight: before.weight + block.weight,
        items: before.items + block.items,
      };
    }
    blocks.push(block);
  });
  let at = 0;
  for (const block of blocks) {
    for (const end = at + block.items; at < end; at++) stack[at]!.y = wish(block) + offsets[at]!;
  }
}

/** The least distance between the middles of two items of a column. */
function distance(above: Item, below: Item, boxHeight: number): number {
  const gap = above.isLane && below.isLane ? GAP_LANES : above.isLane || below.isLane ? GAP_LANE_TO_BOX : GAP_BOXES;
  return (heightOf(above, boxHeight) + heightOf(below, boxHeight)) / 2 + gap;
}

const heightOf = ({ isLane }: Item, boxHeight: number): number => (isLane ? 0 : boxHeight);

const topOf = (item: Item, boxHeight: number): number => item.y - heightOf(item, boxHeight) / 2;

const mean = (items: readonly Item[], of: (item: Item) => number): number =>
  items.reduce((sum, item) => sum + of(item), 0) / items.length;
