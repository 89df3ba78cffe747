// The entries of a container. Only those near the view are loaded and in the document.

import { useEffect, useRef, useState } from "preact/hooks";
import { canBeNamed, readEntries } from "../../api/values";
import type { Entry } from "../../api/values";
import { Loading, Problem } from "../../components/states";
import { Text } from "../../components/text";
import { VirtualRows } from "../../components/virtual";
import { jsonText } from "../../lib/json_text";
import { usePaging } from "../../lib/paging";
import { paths } from "../../lib/router";
import { onShortcut } from "../../lib/shortcuts";
import { visible } from "../../lib/visible";
import type { Value } from "@verify/value";

const PAGE = 100;
const ROW = 40;

export function Entries({
  path,
  version,
  chosen,
}: {
  path: string;
  /** Changes when the container has changed, so that its entries are read again. */
  version: string;
  /** The name of the entry that is shown next to the list. */
  chosen: string | undefined;
}) {
  const { at, total, error, ensure, reload } = usePaging(
    (offset, limit, signal) => readEntries(path, offset, limit, signal),
    PAGE,
    `${path} ${version}`,
  );
  const focused = useRef(-1);
  const [scrollTo, setScrollTo] = useState<{ index: number } | undefined>(undefined);
  const move = (step: number): void => {
    if (total === undefined || total === 0) return;
    focused.current = Math.max(0, Math.min(total - 1, focused.current + step));
    setScrollTo({ index: focused.current });
    requestAnimationFrame(() => {
      const row = document.querySelector<HTMLElement>(`[data-entry="${focused.current}"]`);
      row?.focus({ preventScroll: true });
    });
  };
  useEffect(() => onShortcut("j", () => move(1)), [total]);
  useEffect(() => onShortcut("k", () => move(-1)), [total]);
  return (
    <section class="card" aria-label="Entries">
      <h2>{total === undefined ? "Entries" : `${total.toLocaleString("en")} ${total === 1 ? "entry" : "entries"}`}</h2>
      {error !== undefined ? (
        <Problem error={error} retry={reload} />
      ) : total === undefined ? (
        <Loading what="the entries" />
      ) : total === 0 ? (
        <p class="muted">There is nothing here yet.</p>
      ) : (
        <VirtualRows
          count={total}
          rowHeight={ROW}
          label="Entries"
          onRange={ensure}
          scrollTo={scrollTo}
          row={(index) => (
            <EntryRow
              key={index}
              index={index}
              path={path}
              entry={at(index)}
              isChosen={chosen !== undefined && at(index)?.key === chosen}
              onFocus={() => {
                focused.current = index;
              }}
            />
          )}
        />
      )}
    </section>
  );
}

function EntryRow({
  index,
  path,
  entry,
  isChosen,
  onFocus,
}: {
  index: number;
  path: string;
  entry: Entry | undefined;
  isChosen: boolean;
  onFocus: () => void;
}) {
  if (!entry) {
    return (
      <div class="entry-item" role="listitem">
        <span class="entry-row muted">…</span>
      </div>
    );
  }
  const content = (
    <>
      <span class="entry-key">
        <Text text={entry.key === "" ? "(empty name)" : entry.key} most={100} />
      </span>
      <span class="entry-preview muted">
        {entry.value === undefined ? "large" : <Text text={preview(entry.value)} most={100} />}
      </span>
    </>
  );
  return (
    <div class="entry-item" role="listitem" aria-posinset={index + 1}>
      {canBeNamed(entry.key) ? (
        <a
          class="entry-row"
          href={paths.workspace(`${path}/${entry.key}`)}
          aria-current={isChosen ? "true" : undefined}
          data-entry={index}
          title={visible(entry.key)}
          onFocus={onFocus}
        >
          {content}
        </a>
      ) : (
        <span class="entry-row" title="A path cannot name an entry whose name is empty or has a slash.">
          {content}
        </span>
      )}
    </div>
  );
}

/** A value in a few words. */
export function preview(value: Value): string {
  if (value instanceof Map) return `{ ${count(value.size, "member")} }`;
  if (Array.isArray(value)) return `[ ${count((value as readonly Value[]).length, "item")} ]`;
  if (typeof value === "string") return JSON.stringify(value.slice(0, 120));
  return jsonText(value);
}

const count = (n: number, word: string): string => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
