// A list of rows of equal height of which only those near the view are in the document.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** Rows above and below the view that are kept ready, so that scrolling shows no gaps. */
const EXTRA = 12;
/** Browsers limit the height of an element; beyond this, rows are reached by a scaled scroll bar. */
const HEIGHT_MAX = 8_000_000;

export function VirtualRows({
  count,
  rowHeight,
  label,
  head,
  row,
  onRange,
  scrollTo,
  onTop,
  role = "list",
}: {
  count: number;
  rowHeight: number;
  label: string;
  /** Stays at the top while the rows scroll. */
  head?: ComponentChildren;
  row: (index: number) => ComponentChildren;
  /** Called with the range of rows that are in the document. */
  onRange?: (from: number, to: number) => void;
  /** Index of a row that must be in view; a new object scrolls again. */
  scrollTo?: { index: number } | undefined;
  /** Called when the list reaches or leaves its beginning. */
  onTop?: (isAtTop: boolean) => void;
  role?: "list" | "rowgroup";
}) {
  const view = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ from: 0, to: 30, offset: 0 });
  const height = Math.min(count * rowHeight, HEIGHT_MAX);
  const update = (): void => {
    const element = view.current;
    if (!element) return;
    const visible = Math.ceil(element.clientHeight / rowHeight);
    const scrollable = Math.max(1, height - element.clientHeight);
    const rowsAbove = Math.max(0, count - visible);
    const isScaled = count * rowHeight > HEIGHT_MAX;
    const first = isScaled
      ? Math.round((element.scrollTop / scrollable) * rowsAbove)
      : Math.floor(element.scrollTop / rowHeight);
    const from = Math.max(0, first - EXTRA);
    const to = Math.min(count, first + visible + EXTRA);
    const offset = isScaled ? element.scrollTop - (first - from) * rowHeight : from * rowHeight;
    setRange((before) =>
      before.from === from && before.to === to && before.offset === offset
        ? before
        : { from, to, offset },
    );
    onTop?.(element.scrollTop < rowHeight);
  };
  useEffect(update, [count, rowHeight]);
  useEffect(() => {
    const element = view.current;
    if (!element) return;
    const observer = new ResizeObserver(update);
    observer.observe(element);
    return () => observer.disconnect();
  }, [count]);
  useEffect(() => onRange?.(range.from, range.to), [range.from, range.to, count]);
  useEffect(() => {
    const element = view.current;
    if (!element || !scrollTo) return;
    const share = height / (count * rowHeight);
    const top = scrollTo.index * rowHeight * Math.min(1, share);
    const isVisible =
      top >= element.scrollTop && top + rowHeight <= element.scrollTop + element.clientHeight;
    if (!isVisible) element.scrollTop = Math.max(0, top - element.clientHeight / 2);
    update();
  }, [scrollTo, count > (scrollTo?.index ?? 0)]);
  const rows = [];
  for (let index = range.from; index < Math.min(range.to, count); index++) rows.push(row(index));
  return (
    <div class="virtual" ref={view} onScroll={update} tabIndex={0} role="group" aria-label={label}>
      {head}
      <div class="virtual-space" style={{ height: `${height}px` }}>
        <div
          class="virtual-rows"
          role={role}
          style={{ transform: `translateY(${range.offset}px)` }}
        >
          {rows}
        </div>
      </div>
    </div>
  );
}
