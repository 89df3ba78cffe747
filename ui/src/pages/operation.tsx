// One operation: what it does, what it takes, and a form to run it.

import { useMemo, useRef, useState } from "preact/hooks";
import { newKey } from "../api/client";
import { invoke } from "../api/jobs";
import { readAsset, readOperation } from "../api/operations";
import type { Operation } from "../api/operations";
import { venueStatus } from "../api/venue";
import { CopyButton, Id } from "../components/copy";
import { SchemaForm } from "../components/form";
import { Graph } from "../components/graph";
import { JsonView } from "../components/json_view";
import { FieldProblem, Loading, Problem } from "../components/states";
import { Description, Text } from "../components/text";
import { useAction } from "../lib/action";
import { useLoad } from "../lib/load";
import { planOf } from "../lib/plan";
import { navigate, paths } from "../lib/router";
import { asCli, asCurl } from "../lib/shell";
import { useStore } from "../lib/store";
import { asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";

export function OperationPage({ name }: { name: string }) {
  const operation = useLoad((signal) => readOperation(name, signal), [name]);
  if (!operation.value) {
    return (
      <>
        <h1 tabIndex={-1}>Operation</h1>
        {operation.error === undefined ? (
          <Loading what="the operation" />
        ) : (
          <Problem error={operation.error} retry={operation.reload} />
        )}
      </>
    );
  }
  return <Loaded key={operation.value.asset} operation={operation.value} />;
}

function Loaded({ operation }: { operation: Operation }) {
  const definition = useLoad((signal) => readAsset(operation.asset, signal), [operation.asset]);
  const metadata = asMap(definition.value);
  const isNamed = !/^[0-9a-f]{64}$/.test(operation.name);
  const reference = isNamed ? operation.adapter : operation.asset;
  const title = asText(metadata?.get("name")) ?? (isNamed ? operation.adapter : operation.asset);
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          <p class="crumbs">
            <a href={paths.operations}>Operations</a>
          </p>
          <h1 tabIndex={-1}>
            <Text text={title} most={120} />
          </h1>
          <div class="row wrap">
            {isNamed ? (
              <code>
                <Text text={operation.name} most={100} />
              </code>
            ) : (
              <Id id={operation.name} label="the operation's ID" />
            )}
            {operation.isReadOnly && <span class="tag">read only</span>}
            <a href={paths.jobsWhere({ op: reference })}>Jobs of this operation</a>
          </div>
        </div>
      </header>
      {operation.description && (
        <p class="lead">
          <Description text={operation.description} />
        </p>
      )}
      <section class="card">
        <h2>Run</h2>
        <RunForm operation={operation} reference={reference} />
      </section>
      {definition.value !== undefined && (
        <Definition value={definition.value} asset={operation.asset} />
      )}
      <div class="columns">
        <section class="card">
          <h2>Input schema</h2>
          <JsonView value={operation.input ?? null} label="the input schema" />
        </section>
        <section class="card">
          <h2>Output schema</h2>
          <JsonView value={operation.output ?? null} label="the output schema" />
        </section>
      </div>
    </>
  );
}

function RunForm({ operation, reference }: { operation: Operation; reference: string }) {
  const { isBusy, problem, act } = useAction();
  const [entered, setEntered] = useState("{}");
  // One key per input: pressing the button twice creates one job.
  const key = useRef<{ input: string; key: string }>({ input: "", key: "" });
  const venue = useStore(venueStatus);
  const run = (input: string): Promise<void> =>
    act(async () => {
      if (key.current.input !== input) key.current = { input, key: newKey() };
      const job = await invoke(reference, input, key.current.key);
      key.current = { input: "", key: "" };
      navigate(paths.job(job.id));
    });
  const { origin } = globalThis.location;
  return (
    <>
      <SchemaForm
        schema={operation.input}
        action="Run"
        isBusy={isBusy}
        onSubmit={(input) => void run(input)}
        onChange={setEntered}
      />
      <FieldProblem text={problem} />
      <div class="row wrap form-copy">
        <CopyButton
          name="curl"
          label="Copy as a curl command"
          text={() => asCurl(origin, reference, entered, venue?.isPublic === false)}
        />
        <CopyButton
          name="CLI"
          label="Copy as a catena command"
          text={() => asCli(origin, reference, entered)}
        />
      </div>
    </>
  );
}

/** The definition: an orchestration also as a graph. */
export function Definition({ value, asset }: { value: Value; asset: string }) {
  const plan = useMemo(() => planOf(value), [value]);
  return (
    <section class="card">
      <h2>Definition</h2>
      <p>
        <Id id={asset} href={paths.asset(asset)} label="the definition's ID" />
      </p>
      {plan && plan.length > 0 && <Graph plan={plan} steps={[]} onStep={() => undefined} />}
      <JsonView value={value} label="the definition" />
    </section>
  );
}
