// The operations that can be invoked by name, and those that the caller registered.

import { useEffect, useRef, useState } from "preact/hooks";
import { listAssets, listOperations } from "../api/operations";
import type { Operation } from "../api/operations";
import { Icon } from "../components/icons";
import { Empty, Result } from "../components/states";
import { Description, Text } from "../components/text";
import { useLoad } from "../lib/load";
import { paths } from "../lib/router";
import { onShortcut } from "../lib/shortcuts";

export function OperationsPage() {
  const operations = useLoad(listOperations, []);
  const own = useLoad((signal) => listAssets("own", 0, 200, signal), []);
  const [query, setQuery] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => onShortcut("/", () => input.current?.focus()), []);
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Operations</h1>
        <div class="actions">
          <a class="button" href={paths.register}>
            <Icon name="plus" /> Register an operation
          </a>
        </div>
      </header>
      <label class="search-field wide">
        <Icon name="search" />
        <input
          ref={input}
          type="search"
          placeholder="Search operations"
          aria-label="Search operations"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
      </label>
      {own.value && own.value.items.length > 0 && (
        <section class="card">
          <h2>Registered by you</h2>
          <ul class="op-list">
            {own.value.items.map(({ id, name }) => (
              <li key={id}>
                <a href={paths.operation(id)}>
                  <strong>
                    <Text text={name ?? id} most={100} />
                  </strong>
                  <code class="muted">{id.slice(0, 12)}…</code>
                </a>
              </li>
            ))}
          </ul>
        </section>
      )}
      <Result loaded={operations} what="the operations">
        {(all) => <Groups operations={all} query={query} />}
      </Result>
    </>
  );
}

function Groups({ operations, query }: { operations: readonly Operation[]; query: string }) {
  const wanted = query.trim().toLowerCase();
  const found = operations.filter(({ name, adapter, description }) =>
    `${name} ${adapter} ${description ?? ""}`.toLowerCase().includes(wanted),
  );
  if (found.length === 0) return <Empty title="No operation matches." />;
  const groups = new Map<string, Operation[]>();
  for (const operation of found) {
    const group = operation.adapter.split(":")[0] ?? "";
    groups.set(group, [...(groups.get(group) ?? []), operation]);
  }
  return (
    <>
      {[...groups].map(([group, members]) => (
        <section class="card" key={group}>
          <h2>
            <Text text={group} most={60} />
          </h2>
          <ul class="op-list">
            {members.map((operation) => (
              <li key={operation.name}>
                <a href={paths.operation(operation.name)}>
                  <strong>
                    <Text text={operation.adapter} most={100} />
                  </strong>
                  {operation.isReadOnly && <span class="tag">read only</span>}
                  {operation.description && (
                    <span class="muted">
                      <Description text={operation.description} most={300} />
                    </span>
                  )}
                </a>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}
