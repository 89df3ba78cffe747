// The agents of the caller.

import { useState } from "preact/hooks";
import { actOnAgent, listAgents } from "../../api/agents";
import { readOperation } from "../../api/operations";
import { SchemaForm } from "../../components/form";
import { Empty, FieldProblem, Result } from "../../components/states";
import { StatusChip } from "../../components/status";
import { Text } from "../../components/text";
import { useAction } from "../../lib/action";
import { useInterval, useLoad } from "../../lib/load";
import { navigate, paths } from "../../lib/router";
import { readText } from "@verify/json";
import { asMap, asText } from "@verify/value";

const REFRESH_MS = 3000;

export function AgentsPage() {
  const [hasTerminated, setHasTerminated] = useState(false);
  const agents = useLoad((signal) => listAgents(hasTerminated, signal), [hasTerminated]);
  useInterval(agents.reload, REFRESH_MS);
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Agents</h1>
        <label class="check">
          <input
            type="checkbox"
            checked={hasTerminated}
            onChange={(event) => setHasTerminated(event.currentTarget.checked)}
          />
          Show those that were terminated
        </label>
      </header>
      <Result loaded={agents} what="the agents">
        {(all) =>
          all.length === 0 ? (
            <Empty title="There are no agents.">
              <p>Use the form below to create one.</p>
            </Empty>
          ) : (
            <section class="card">
              <ul class="op-list">
                {all.map((agent) => (
                  <li key={agent.id}>
                    <a href={paths.agent(agent.id)}>
                      <strong>
                        <Text text={agent.id} most={128} />
                      </strong>
                      <StatusChip status={agent.status} />
                      {agent.tasks > 0 && (
                        <span class="tag">
                          {agent.tasks} {agent.tasks === 1 ? "run" : "runs"}
                        </span>
                      )}
                      {agent.error !== undefined && (
                        <span class="muted">
                          <Text text={agent.error} most={300} />
                        </span>
                      )}
                    </a>
                  </li>
                ))}
              </ul>
            </section>
          )
        }
      </Result>
      <NewAgent />
    </>
  );
}

function NewAgent() {
  const operation = useLoad((signal) => readOperation("v/ops/agent/create", signal), []);
  const { isBusy, problem, act } = useAction();
  const create = (input: string): Promise<void> =>
    act(async () => {
      await actOnAgent("create", input);
      navigate(paths.agent(asText(asMap(readText(input))?.get("agentId")) ?? ""));
    });
  return (
    <section class="card">
      <h2>New agent</h2>
      <Result loaded={operation} what="the form">
        {({ input }) => (
          <SchemaForm
            schema={input}
            action="Create"
            isBusy={isBusy}
            onSubmit={(text) => void create(text)}
          />
        )}
      </Result>
      <FieldProblem text={problem} />
    </section>
  );
}
