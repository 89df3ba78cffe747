// JSON as a tree that can be folded, searched and copied. Only what is unfolded is in the document, and
// long lists and strings are shown in parts, so that no value can freeze the page.

import { useMemo, useState } from "preact/hooks";
import { jsonText, numberText, sizeUpTo } from "../lib/json_text";
import type { Value } from "@verify/value";
import { CopyButton } from "./copy";
import { Icon } from "./icons";
import { Text } from "./text";

const MEMBERS_SHOWN = 100;
const STRING_SHOWN = 2000;
/** Values larger than this, in characters, are shown only on request. */
const LARGE = 200_000;
/** Members that a search looks at; more would take too long. */
const SEARCHED_MAX = 200_000;

export function JsonView({
  value,
  label,
  isRequested = false,
}: {
  value: Value;
  label: string;
  /** Whether the reader has asked for it, however large it is. */
  isRequested?: boolean;
}) {
  const [isOpen, setIsOpen] = useState(isRequested);
  const [query, setQuery] = useState("");
  const size = useMemo(() => sizeUpTo(value, LARGE + 1), [value]);
  const matches = useMemo(() => (query === "" ? undefined : search(value, query)), [value, query]);
  const isContainer = typeof value === "object" && value !== null;
  if (size > LARGE && !isOpen) {
    return (
      <div class="json-large">
        <p class="muted">This value is larger than {LARGE / 1000} kB.</p>
        <div class="row">
          <button type="button" class="button small" onClick={() => setIsOpen(true)}>
            Show it
          </button>
          <DownloadButton value={value} label={label} />
        </div>
      </div>
    );
  }
  return (
    <div class="json">
      <div class="json-tools">
        {isContainer && (
          <label class="search-field">
            <Icon name="search" />
            <input
              type="search"
              placeholder={`Search ${label}`}
              aria-label={`Search ${label}`}
              value={query}
              onInput={(event) => setQuery(event.currentTarget.value)}
            />
          </label>
        )}
        {matches && (
          <span class="muted" role="status">
            {matches.count} {matches.count === 1 ? "match" : "matches"}
            {matches.isPartial ? " in the first part" : ""}
          </span>
        )}
        <span class="spacer" />
        <CopyButton text={() => jsonText(value, 2)} label={`Copy ${label} as JSON`} />
      </div>
      <div class="json-tree">
        <Node value={value} depth={0} path="" matches={matches} />
      </div>
    </div>
  );
}

function DownloadButton({ value, label }: { value: Value; label: string }) {
  const download = (): void => {
    const blob = new Blob([jsonText(value, 2)], { type: "application/json" });
    const url = URL.createObjectURL(blob);
    const link = document.createElement("a");
    link.href = url;
    link.download = `${label.replaceAll(/[^a-z0-9-]+/gi, "-")}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return (
    <button type="button" class="button small" onClick={download}>
      Download
    </button>
  );
}

interface Matches {
  readonly paths: ReadonlySet<string>;
  readonly count: number;
  readonly isPartial: boolean;
}

/** The paths of all members whose name or value contains the text, and of everything around them. */
function search(value: Value, query: string): Matches {
  const wanted = query.toLowerCase();
  const paths = new Set<string>();
  let count = 0;
  let looked = 0;
  const visit = (value: Value, path: string, name: string): boolean => {
    if (++looked > SEARCHED_MAX) return false;
    let isFound = name.toLowerCase().includes(wanted);
    if (typeof value === "object" && value !== null) {
      if (isFound) count++;
      for (const [key, item] of entriesOf(value)) {
        if (visit(item, `${path}/${key}`, key)) isFound = true;
      }
    } else {
      isFound ||= scalarText(value).toLowerCase().includes(wanted);
      if (isFound) count++;
    }
    if (isFound) paths.add(path);
    return isFound;
  };
  visit(value, "", "");
  return { paths, count, isPartial: looked > SEARCHED_MAX };
}

function entriesOf(value: Value & object): [string, Value][] {
  if (value instanceof Map) return [...(value as ReadonlyMap<string, Value>)];
  return (value as readonly Value[]).map((item, at) => [String(at), item]);
}

function scalarText(value: Value): string {
  if (typeof value === "bigint" || typeof value === "number") return numberText(value);
  return typeof value === "string" ? value : String(value);
}

function Node({
  name,
  value,
  depth,
  path,
  matches,
}: {
  name?: string;
  value: Value;
  depth: number;
  path: string;
  matches: Matches | undefined;
}) {
  const [isOpen, setIsOpen] = useState<boolean | undefined>(undefined);
  const [shown, setShown] = useState(MEMBERS_SHOWN);
  const key = name !== undefined && (
    <span class="json-key">
      <Text text={name} most={200} />
      <span class="muted">: </span>
    </span>
  );
  if (typeof value !== "object" || value === null) {
    return (
      <div class="json-line">
        {key}
        <Scalar value={value} />
      </div>
    );
  }
  const isList = Array.isArray(value);
  const count = isList ? (value as readonly Value[]).length : (value as { size: number }).size;
  const isUnfolded = isOpen ?? (matches ? matches.paths.has(path) : depth < 2 && count <= 50);
  const summary = isList
    ? `[ ${count} ${count === 1 ? "item" : "items"} ]`
    : `{ ${count} ${count === 1 ? "member" : "members"} }`;
  if (count === 0) {
    return (
      <div class="json-line">
        {key}
        <span class="muted">{isList ? "[ ]" : "{ }"}</span>
      </div>
    );
  }
  const entries = isUnfolded ? entriesOf(value) : [];
  const listed = matches ? entries.filter(([key]) => matches.paths.has(`${path}/${key}`)) : entries;
  return (
    <div class="json-node">
      <button
        type="button"
        class="json-toggle"
        aria-expanded={isUnfolded}
        onClick={() => setIsOpen(!isUnfolded)}
      >
        <Icon name={isUnfolded ? "down" : "right"} />
        {key}
        <span class="muted">{summary}</span>
      </button>
      {isUnfolded && (
        <div class="json-children">
          {(listed.length > 0 ? listed : entries).slice(0, shown).map(([key, item]) => (
            <Node
              key={key}
              name={key}
              value={item}
              depth={depth + 1}
              path={`${path}/${key}`}
              matches={matches}
            />
          ))}
          {entries.length > shown && (
            <button
              type="button"
              class="button small"
              onClick={() => setShown(shown + 10 * MEMBERS_SHOWN)}
            >
              Show more ({(entries.length - shown).toLocaleString("en")} left)
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function Scalar({ value }: { value: Value }) {
  const [shown, setShown] = useState(STRING_SHOWN);
  if (typeof value !== "string") {
    const kind = value === null ? "null" : typeof value === "boolean" ? "boolean" : "number";
    return <span class={`json-${kind}`}>{scalarText(value)}</span>;
  }
  if (/^https?:\/\/[^\s]{1,500}$/i.test(value) && URL.canParse(value)) {
    return (
      <span class="json-string">
        "
        <a href={value} target="_blank" rel="noopener noreferrer nofollow">
          <Text text={value} />
        </a>
        "
      </span>
    );
  }
  return (
    <span class="json-string">
      "<Text text={value.slice(0, shown)} most={shown} />"
      {value.length > shown && (
        <button
          type="button"
          class="button small"
          onClick={() => setShown(shown + 10 * STRING_SHOWN)}
        >
          Show more ({(value.length - shown).toLocaleString("en")} characters left)
        </button>
      )}
    </span>
  );
}
