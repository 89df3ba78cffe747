// The steps of an orchestration, as a graph and as a list.

import { useMemo, useState } from "preact/hooks";
import { messageOf } from "../../api/client";
import { rerun } from "../../api/jobs";
import type { Job, Step } from "../../api/jobs";
import { readAsset } from "../../api/operations";
import { Id } from "../../components/copy";
import { Dialog } from "../../components/dialog";
import { Fact } from "../../components/facts";
import { criticalSteps, Graph } from "../../components/graph";
import { Icon } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { Empty, FieldProblem } from "../../components/states";
import { StatusChip } from "../../components/status";
import { Text } from "../../components/text";
import { Duration, Elapsed, Time } from "../../components/time";
import { useLoad } from "../../lib/load";
import { planOf } from "../../lib/plan";
import type { PlanStep } from "../../lib/plan";
import { location, navigate, paths } from "../../lib/router";
import { useStore } from "../../lib/store";
import { isTerminal } from "@verify/status";

export function Steps({ job }: { job: Job }) {
  const { hash } = useStore(location);
  const [view, setView] = useState<"graph" | "list">(() =>
    matchMedia("(min-width: 700px)").matches ? "graph" : "list",
  );
  const definition = useLoad((signal) => readAsset(job.operation, signal), [job.operation]);
  const steps = job.steps ?? [];
  const plan = useMemo(
    () => planOf(definition.value ?? null) ?? steps.map(bareStep),
    [definition.value, steps.length],
  );
  const critical = useMemo(() => criticalSteps(plan, steps), [plan, steps]);
  if (steps.length === 0) return <Empty title="This job has no steps." />;
  const chosen = /^step-(\d+)$/.exec(hash)?.[1];
  const open = chosen === undefined ? undefined : steps.find(({ index }) => index === Number(chosen));
  const choose = (index: number): void => navigate(paths.step(job.id, index), { replace: true });
  return (
    <section class="card">
      <div class="row wrap spread">
        <h2>Steps</h2>
        <div class="segmented" role="group" aria-label="How to show the steps">
          <button type="button" aria-pressed={view === "graph"} onClick={() => setView("graph")}>
            Graph
          </button>
          <button type="button" aria-pressed={view === "list"} onClick={() => setView("list")}>
            List
          </button>
        </div>
      </div>
      {view === "graph" ? (
        <>
          <p class="muted small">The heavier border and line mark the critical path.</p>
          <Graph plan={plan} steps={steps} onStep={choose} />
        </>
      ) : (
        <StepTable job={job.id} steps={steps} plan={plan} critical={critical} />
      )}
      {open && (
        <StepDrawer
          job={job}
          step={open}
          plan={plan}
          onClose={() => navigate(paths.job(job.id, "steps"), { replace: true })}
        />
      )}
    </section>
  );
}

const bareStep = ({ index, name, op, venue }: Step): PlanStep => ({
  index,
  name,
  op,
  venue,
  needs: [],
});

function Took({ step }: { step: Step }) {
  if (step.started === undefined) return <span class="muted">–</span>;
  if (step.ended !== undefined) return <Duration ms={Math.max(0, step.ended - step.started)} />;
  return <Elapsed since={step.started} />;
}

function StepTable({
  job,
  steps,
  plan,
  critical,
}: {
  job: string;
  steps: readonly Step[];
  plan: readonly PlanStep[];
  critical: readonly number[];
}) {
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label="Table of the steps">
      <table class="table stacked" role="table">
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">Status</th>
            <th scope="col">Took</th>
            <th scope="col">Needs</th>
            <th scope="col">Venue</th>
          </tr>
        </thead>
        <tbody>
          {steps.map((step) => (
            <tr key={step.index} role="row">
              <th scope="row" role="rowheader">
                <a href={paths.step(job, step.index)}>
                  {step.index} <Text text={step.name ?? step.op} most={60} />
                </a>
                {critical.includes(step.index) && <span class="tag">critical path</span>}
              </th>
              <td role="cell" data-name="Status">
                <StatusChip status={step.status} />
              </td>
              <td role="cell" data-name="Took">
                <Took step={step} />
              </td>
              <td role="cell" data-name="Needs">{plan[step.index]?.needs.join(", ") || "–"}</td>
              <td role="cell" data-name="Venue">
                {step.venue === undefined ? (
                  <span class="muted">this one</span>
                ) : (
                  <Text text={step.venue} most={60} />
                )}
                {step.asOf !== undefined && (
                  <span class="muted">
                    {" "}
                    as of <Time at={step.asOf} />
                  </span>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function StepDrawer({
  job,
  step,
  plan,
  onClose,
}: {
  job: Job;
  step: Step;
  plan: readonly PlanStep[];
  onClose: () => void;
}) {
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const needs = plan[step.index]?.needs ?? [];
  const again = async (): Promise<void> => {
    try {
      navigate(paths.job(await rerun(job.id, step.index)));
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <Dialog title={`Step ${step.index}`} kind="drawer" onClose={onClose}>
      <p class="drawer-name">
        <Text text={step.name ?? step.op} most={200} />
      </p>
      <div class="row wrap">
        <StatusChip status={step.status} />
        <Took step={step} />
        {step.isReused && <span class="tag">reused</span>}
      </div>
      <dl class="facts narrow">
        <Fact name="Operation">
          <a href={paths.operation(step.op)}>
            <Text text={step.op} most={200} />
          </a>
        </Fact>
        {needs.length > 0 && (
          <Fact name="Needs">{needs.map((need) => `step ${need}`).join(", ")}</Fact>
        )}
        {step.id && (
          <Fact name="Job">
            <Id
              id={step.id}
              href={step.venue === undefined ? paths.job(step.id) : undefined}
              label="the step's job ID"
            />
          </Fact>
        )}
        {step.venue !== undefined && (
          <Fact name="Venue">
            <Text text={step.venue} most={200} />
            {step.asOf !== undefined && (
              <>
                , as of <Time at={step.asOf} />
              </>
            )}
          </Fact>
        )}
        {step.started !== undefined && (
          <Fact name="Started">
            <Time at={step.started} />
          </Fact>
        )}
      </dl>
      {step.error !== undefined && (
        <div class="callout bad">
          <Icon name="warn" />
          <p class="callout-text">
            <Text text={step.error} />
          </p>
        </div>
      )}
      {step.output !== undefined && (
        <>
          <h3>Output</h3>
          <JsonView value={step.output} label={`the output of step ${step.index}`} />
        </>
      )}
      {isTerminal(job.status) && (
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => void again()}>
            <Icon name="again" /> Run again from this step
          </button>
        </div>
      )}
      <FieldProblem text={problem} />
    </Dialog>
  );
}
