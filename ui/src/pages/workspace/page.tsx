// The workspace of the caller: one container at a time, of any size, and the value that is chosen.

import { useEffect, useRef } from "preact/hooks";
import { describeValue, segmentsOf } from "../../api/values";
import type { Described } from "../../api/values";
import { capabilities } from "../../api/venue";
import { Icon } from "../../components/icons";
import { Empty, Result } from "../../components/states";
import { Text } from "../../components/text";
import { useInterval, useLoad } from "../../lib/load";
import { location, navigate, paths } from "../../lib/router";
import { useStore } from "../../lib/store";
import { Detail } from "./detail";
import { Entries } from "./entries";
import { Secrets } from "./secrets";

/** How often it is checked whether somebody else changed what is shown. */
const CHECK_MS = 5000;

export function WorkspacePage() {
  const { query } = useStore(location);
  const path = segmentsOf(query.get("path") ?? "").join("/");
  const heading = useRef<HTMLHeadingElement>(null);
  const isFirst = useRef(true);
  // A row that had the focus may be gone; the focus must not be lost with it.
  useEffect(() => {
    if (!isFirst.current && document.activeElement === document.body) heading.current?.focus();
    isFirst.current = false;
  }, [path]);
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          <h1 tabIndex={-1} ref={heading}>
            Workspace
          </h1>
          <Crumbs path={path} />
        </div>
      </header>
      {path === "" ? <Namespaces /> : <Place key={path} path={path} />}
    </>
  );
}

function Crumbs({ path }: { path: string }) {
  const segments = segmentsOf(path);
  return (
    <nav aria-label="Path">
      <ol class="path">
        <li>
          <a href={paths.workspace()} aria-current={path === "" ? "page" : undefined}>
            All
          </a>
        </li>
        {segments.map((segment, at) => {
          const to = segments.slice(0, at + 1).join("/");
          return (
            <li key={to}>
              <span aria-hidden="true"> / </span>
              <a href={paths.workspace(to)} aria-current={to === path ? "page" : undefined}>
                <Text text={segment} most={60} />
              </a>
            </li>
          );
        })}
      </ol>
    </nav>
  );
}

const NAMESPACES: readonly (readonly [name: string, title: string, about: string])[] = [
  ["w", "Values", "Data that outlives a job. Operations, orchestrations and you read and change it."],
  ["o", "Operations", "Operations of your own, each a definition or the ID of one, invoked by their path."],
  ["v", "The venue", "What the venue publishes: its version, its adapters and its operations. Read only."],
];

function Namespaces() {
  const { hasSecrets } = useStore(capabilities);
  return (
    <>
      <ul class="grid thirds">
        {NAMESPACES.map(([name, title, about]) => (
          <NamespaceCard key={name} name={name} title={title} about={about} />
        ))}
      </ul>
      <OpenPath />
      {hasSecrets && <Secrets />}
    </>
  );
}

function NamespaceCard({ name, title, about }: { name: string; title: string; about: string }) {
  const described = useLoad((signal) => describeValue(name, signal), [name]);
  const count = described.value?.count ?? 0;
  return (
    <li class="card">
      <h2>
        <a href={paths.workspace(name)}>
          {title} (<code>{name}</code>)
        </a>
      </h2>
      <p class="muted">{about}</p>
      <Result loaded={described} what="the number of entries">
        {() => (
          <p>
            {count.toLocaleString("en")} {count === 1 ? "entry" : "entries"}
          </p>
        )}
      </Result>
    </li>
  );
}

function OpenPath() {
  return (
    <form
      class="card form"
      onSubmit={(event) => {
        event.preventDefault();
        const path = String(new FormData(event.currentTarget).get("path") ?? "").trim();
        if (path !== "") navigate(paths.workspace(path));
      }}
    >
      <div class="field">
        <label for="workspace-path">Open a path</label>
        <input
          id="workspace-path"
          name="path"
          type="text"
          placeholder="w/records/1/name"
          autoComplete="off"
          spellcheck={false}
          aria-describedby="workspace-path-hint"
        />
        <p class="hint" id="workspace-path-hint">
          Also <code>j/ID</code> for a job, <code>h/ID</code> for its records, <code>a/ID</code> for
          an asset, <code>g/ID</code> for an agent.
        </p>
      </div>
      <div class="form-actions">
        <button type="submit" class="button">
          <Icon name="open" /> Open
        </button>
      </div>
    </form>
  );
}

/** What is at a path: a container with its entries, or a single value next to those around it. */
function Place({ path }: { path: string }) {
  const described = useLoad((signal) => describeValue(path, signal), [path]);
  useInterval(described.reload, CHECK_MS);
  return (
    <Result loaded={described} what="the value">
      {(value) => <Shown path={path} described={value} reload={described.reload} />}
    </Result>
  );
}

function Shown({
  path,
  described,
  reload,
}: {
  path: string;
  described: Described;
  reload: () => void;
}) {
  const isContainer = described.count !== undefined;
  const parent = segmentsOf(path).slice(0, -1).join("/");
  const isNamespace = !path.includes("/");
  if (!described.exists && !isNamespace) {
    return (
      <Empty title="There is nothing at this path.">
        <p>
          <a href={paths.workspace(parent)}>Go to what is above it</a>
        </p>
      </Empty>
    );
  }
  return (
    <div class="browser">
      {isContainer || isNamespace ? (
        <Entries path={path} version={described.id ?? ""} chosen={undefined} />
      ) : (
        <Entries path={parent} version="" chosen={segmentsOf(path).at(-1)} />
      )}
      <Detail path={path} described={described} onChanged={reload} />
    </div>
  );
}
