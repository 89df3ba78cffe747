// Actions on many jobs: those that are selected, or all that match the filter. The action is a job of
// its own, which the venue refuses if the number of jobs is no longer the one that was confirmed.

import { useState } from "preact/hooks";
import { messageOf, newKey } from "../api/client";
import { invoke, run as runOperation } from "../api/jobs";
import type { JobFilter } from "../api/jobs";
import { Confirm } from "../components/dialog";
import { Text } from "../components/text";
import { navigate, paths } from "../lib/router";
import { asMap } from "@verify/value";

const ACTIONS = ["cancel", "pause", "resume", "rerun", "delete"] as const;
type Action = (typeof ACTIONS)[number];

export function BulkBar({
  filter,
  total,
  isTotalAtLeast,
  selected,
  onDone,
}: {
  filter: JobFilter;
  total: number;
  /** Whether there may be more than `total`: they are counted before anything is confirmed. */
  isTotalAtLeast: boolean;
  selected: ReadonlySet<string>;
  onDone: () => void;
}) {
  const [action, setAction] = useState<Action | undefined>(undefined);
  const [counted, setCounted] = useState<number | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const isSelection = selected.size > 0;
  const isUnknown = !isSelection && isTotalAtLeast && counted === undefined;
  const count = isSelection ? selected.size : (counted ?? total);
  const jobs = `${isUnknown ? "at least " : ""}${count.toLocaleString("en")} ${count === 1 ? "job" : "jobs"}`;
  const choose = async (chosen: Action | undefined): Promise<void> => {
    setProblem(undefined);
    setCounted(undefined);
    if (chosen === undefined || isSelection || !isTotalAtLeast) return setAction(chosen);
    try {
      const found = asMap(await runOperation("jobs:select", JSON.stringify({ filter })));
      setCounted(Number(found?.get("count") ?? 0));
      setAction(chosen);
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  const run = async (action: Action): Promise<void> => {
    const which = isSelection ? { ids: [...selected] } : { filter };
    const input = JSON.stringify({ ...which, action, expected: count });
    try {
      const job = await invoke("jobs:control", input, newKey());
      onDone();
      navigate(paths.job(job.id));
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <div class="row wrap">
      <label class="bulk">
        <span>{isSelection ? `${jobs} selected` : `All ${jobs}`}</span>
        <select
          value=""
          aria-label={`Action on ${jobs}`}
          onChange={(event) => {
            void choose(ACTIONS.find((known) => known === event.currentTarget.value));
            event.currentTarget.value = "";
          }}
        >
          <option value="">Action…</option>
          {ACTIONS.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      {problem && (
        <span class="field-problem" role="alert">
          <Text text={problem} />
        </span>
      )}
      {action && (
        <Confirm
          title={`${action[0]!.toUpperCase()}${action.slice(1)} ${jobs}?`}
          action={`${action[0]!.toUpperCase()}${action.slice(1)} ${jobs}`}
          isDangerous={action === "cancel" || action === "delete"}
          onConfirm={() => void run(action)}
          onClose={() => setAction(undefined)}
        >
          <p>
            {isSelection
              ? `This applies to the ${jobs} that you selected.`
              : `This applies to all ${jobs} that match the current filter.`}{" "}
            If the number has changed when the venue receives this, nothing happens.
          </p>
        </Confirm>
      )}
    </div>
  );
}
