// The command palette: pages, operations and jobs by typing.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { listOperations } from "../api/operations";
import type { Operation } from "../api/operations";
import { capabilities } from "../api/venue";
import type { Capabilities } from "../api/venue";
import { navigate, paths } from "../lib/router";
import { chooseTheme } from "../lib/theme";
import { parseJobId } from "@verify/ids";
import { Dialog } from "./dialog";
import { Text } from "./text";

interface Command {
  readonly title: string;
  readonly group: string;
  readonly run: () => void;
}

const go = (to: string) => () => navigate(to);

const commands = ({ hasWorkspace, hasExecutions, hasAgents, hasRequests }: Capabilities): Command[] => [
  { group: "Go to", title: "Home", run: go(paths.home) },
  { group: "Go to", title: "Jobs", run: go(paths.jobs) },
  { group: "Go to", title: "Running jobs", run: go(paths.jobsWhere({ status: "STARTED" })) },
  { group: "Go to", title: "Failed jobs", run: go(paths.jobsWhere({ status: "FAILED" })) },
  {
    group: "Go to",
    title: "Jobs that need input",
    run: go(paths.jobsWhere({ status: "INPUT_REQUIRED" })),
  },
  { group: "Go to", title: "Operations", run: go(paths.operations) },
  { group: "Go to", title: "Register an operation", run: go(paths.register) },
  { group: "Go to", title: "Assets", run: go(paths.assets) },
  { group: "Go to", title: "Schedules", run: go(paths.schedules) },
  ...(hasWorkspace ? [{ group: "Go to", title: "Workspace", run: go(paths.workspace()) }] : []),
  ...(hasAgents ? [{ group: "Go to", title: "Agents", run: go(paths.agents) }] : []),
  ...(hasRequests ? [{ group: "Go to", title: "Requests", run: go(paths.requests) }] : []),
  ...(hasExecutions ? [{ group: "Go to", title: "Executions", run: go(paths.executions) }] : []),
  { group: "Go to", title: "Settings", run: go(paths.settings) },
  { group: "Theme", title: "Use the light theme", run: () => chooseTheme("light") },
  { group: "Theme", title: "Use the dark theme", run: () => chooseTheme("dark") },
  { group: "Theme", title: "Use the theme of the system", run: () => chooseTheme("system") },
];

const SHOWN_MAX = 12;

export function Palette({ onClose }: { onClose: () => void }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const [operations, setOperations] = useState<readonly Operation[]>([]);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    input.current?.focus();
    listOperations().then(setOperations, () => undefined);
  }, []);
  const found = useMemo(() => match(query, operations), [query, operations]);
  const chosen = Math.min(at, found.length - 1);
  const run = (command: Command | undefined): void => {
    onClose();
    command?.run();
  };
  const onKey = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setAt(Math.max(0, Math.min(found.length - 1, chosen + step)));
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[chosen]);
    }
  };
  return (
    <Dialog title="Command palette" kind="palette" onClose={onClose}>
      <input
        ref={input}
        class="palette-input"
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length > 0 ? `palette-${chosen}` : undefined}
        aria-label="Search pages, operations and job IDs"
        placeholder="A page, an operation, or a job ID"
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKey}
      />
      <ul id="palette-list" role="listbox" class="palette-list" aria-label="Commands">
        {found.map((command, index) => (
          <li
            id={`palette-${index}`}
            key={`${command.group}/${command.title}`}
            role="option"
            aria-selected={index === chosen}
            class="palette-item"
            onClick={() => run(command)}
          >
            <Text text={command.title} most={120} />
            <span class="muted">{command.group}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="palette-none muted">Nothing matches.</p>}
    </Dialog>
  );
}

function match(query: string, operations: readonly Operation[]): Command[] {
  const wanted = query.trim().toLowerCase();
  const job = parseJobId(query.trim());
  const all: Command[] = [
    ...commands(capabilities.get()),
    ...operations.map((operation) => ({
      group: "Run",
      title: operation.adapter,
      run: go(paths.operation(operation.name)),
    })),
  ];
  const found = all.filter(({ title }) => title.toLowerCase().includes(wanted));
  if (job) found.unshift({ group: "Job", title: job, run: go(paths.job(job)) });
  return found.slice(0, SHOWN_MAX);
}
