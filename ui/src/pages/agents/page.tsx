// One agent: what it is, what it is told, and what became of its state.

import { useEffect, useState } from "preact/hooks";
import { actOnAgent, readAgent, readGrants, readInbox } from "../../api/agents";
import type { Agent, AgentAction } from "../../api/agents";
import { messageOf } from "../../api/client";
import { capabilities } from "../../api/venue";
import { Id } from "../../components/copy";
import { Confirm } from "../../components/dialog";
import { Fact } from "../../components/facts";
import { Icon } from "../../components/icons";
import type { IconName } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { RequestList, useRequests } from "../../components/requests";
import { FieldProblem, Loading, Problem, Result } from "../../components/states";
import { StatusChip } from "../../components/status";
import { Text } from "../../components/text";
import { Time } from "../../components/time";
import { failuresSentence, jobIn, wakeSentence } from "../../lib/agents";
import { useInterval, useLoad } from "../../lib/load";
import { paths } from "../../lib/router";
import { useStore } from "../../lib/store";
import { Chat } from "./chat";
import { Message } from "./message";
import { Turns } from "./turns";

const REFRESH_MS = 2000;
/** Messages of the inbox that are shown. */
const INBOX_SHOWN = 50;

export function AgentPage({ id }: { id: string }) {
  const agent = useLoad((signal) => readAgent(id, signal), [id]);
  useInterval(agent.reload, REFRESH_MS);
  if (!agent.value) {
    return (
      <>
        <h1 tabIndex={-1}>Agent</h1>
        {agent.error === undefined ? (
          <Loading what="the agent" />
        ) : (
          <Problem error={agent.error} retry={agent.reload} />
        )}
      </>
    );
  }
  return <LoadedAgent key={id} agent={agent.value} reload={agent.reload} />;
}

function LoadedAgent({ agent, reload }: { agent: Agent; reload: () => void }) {
  const isTerminated = agent.status === "TERMINATED";
  const { hasRequests } = useStore(capabilities);
  const cause = agent.error === undefined ? undefined : jobIn(agent.error);
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          <p class="crumbs">
            <a href={paths.agents}>Agents</a>
          </p>
          <h1 tabIndex={-1}>
            <Text text={agent.id} most={128} />
          </h1>
          <div class="row wrap">
            <StatusChip status={agent.status} />
            <a href={paths.workspace(`g/${agent.id}`)}>Record</a>
          </div>
        </div>
        <Actions agent={agent} reload={reload} />
      </header>
      {agent.error !== undefined && (
        <section class="callout bad" aria-label="Error">
          <Icon name="warn" />
          <div>
            <p class="callout-text">
              <Text text={agent.error} />
            </p>
            {cause !== undefined && (
              <p>
                <a href={paths.job(cause)}>The job of the turn that failed</a>
              </p>
            )}
          </div>
        </section>
      )}
      {hasRequests && <Requests id={agent.id} />}
      {!isTerminated && <Chat agent={agent} onSent={reload} />}
      <Turns agent={agent} />
      <Inbox agent={agent} />
      <section class="card">
        <h2>Facts</h2>
        <Facts agent={agent} />
        <Grants id={agent.id} changed={agent.changed} />
        <details>
          <summary>Configuration</summary>
          <JsonView value={agent.config ?? null} label="the configuration" />
        </details>
      </section>
    </>
  );
}

const ACTIONS: readonly (readonly [AgentAction, string, IconName, readonly string[]])[] = [
  ["trigger", "Run", "play", ["SLEEPING", "RUNNING"]],
  ["suspend", "Suspend", "pause", ["SLEEPING", "RUNNING"]],
  ["resume", "Resume", "play", ["SUSPENDED"]],
  ["delete", "Terminate", "stop", ["SLEEPING", "RUNNING", "SUSPENDED"]],
];

function Actions({ agent, reload }: { agent: Agent; reload: () => void }) {
  const [busy, setBusy] = useState<AgentAction | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isAsked, setIsAsked] = useState(false);
  const act = async (action: AgentAction): Promise<void> => {
    setBusy(action);
    setProblem(undefined);
    const more = action === "resume" ? { force: true } : action === "trigger" ? { wait: false } : {};
    try {
      await actOnAgent(action, { agentId: agent.id, ...more });
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setBusy(undefined);
      reload();
    }
  };
  return (
    <div class="actions">
      <div class="row wrap">
        {ACTIONS.filter(([, , , statuses]) => statuses.includes(agent.status)).map(
          ([action, title, icon]) => (
            <button
              key={action}
              type="button"
              class="button"
              disabled={busy !== undefined}
              onClick={() => (action === "delete" ? setIsAsked(true) : void act(action))}
            >
              <Icon name={icon} /> {busy === action ? "…" : title}
            </button>
          ),
        )}
      </div>
      <FieldProblem text={problem} />
      {isAsked && (
        <Confirm
          title="Terminate this agent?"
          action="Terminate it"
          isDangerous
          onConfirm={() => void act("delete")}
          onClose={() => setIsAsked(false)}
        >
          <p>Its runs are cancelled, and it takes no more messages. Its record is kept.</p>
        </Confirm>
      )}
    </div>
  );
}

function Facts({ agent }: { agent: Agent }) {
  return (
    <dl class="facts">
      {agent.created !== undefined && (
        <Fact name="Created">
          <Time at={agent.created} />
        </Fact>
      )}
      {agent.changed !== undefined && (
        <Fact name="Last change">
          <Time at={agent.changed} />
        </Fact>
      )}
      <Fact name="When it runs">
        <Text text={wakeSentence(agent.config)} most={200} />
      </Fact>
      <Fact name="Turns">{agent.turns.toLocaleString("en")}</Fact>
      <Fact name="Failures in a row">{failuresSentence(agent.failures, agent.config)}</Fact>
      <Fact name="Runs in progress or waiting">{agent.tasks.toLocaleString("en")}</Fact>
      {agent.job !== undefined && (
        <Fact name="Run">
          <Id id={agent.job} href={paths.job(agent.job)} label="the job of the run" />
        </Fact>
      )}
    </dl>
  );
}

function Grants({ id, changed }: { id: string; changed: number | undefined }) {
  const grants = useLoad(async (signal) => ({ list: await readGrants(id, signal) }), [id]);
  // A change of the agent may be one of its capabilities; meanwhile the known ones stay.
  useEffect(grants.reload, [changed]);
  return (
    <Result loaded={grants} what="the capabilities">
      {({ list }) =>
        list === undefined ? (
          <p class="muted">The agent is not restricted: it may do what its owner may.</p>
        ) : list.length === 0 ? (
          <p>The agent may do nothing.</p>
        ) : (
          <ul aria-label="What the agent may do">
            {list.map((sentence, index) => (
              <li key={index}>
                <Text text={sentence} most={300} />
              </li>
            ))}
          </ul>
        )
      }
    </Result>
  );
}

/** The questions of the agent that wait for an answer. Nothing is there if none does. */
function Requests({ id }: { id: string }) {
  const requests = useRequests(id, false);
  return (
    <RequestList listed={requests.value ?? []} hasAsker={false} reload={requests.reload} empty={null} />
  );
}

function Inbox({ agent }: { agent: Agent }) {
  const inbox = useLoad((signal) => readInbox(agent.id, INBOX_SHOWN, signal), [agent.id, agent.waiting]);
  return (
    <section class="card" aria-label="Inbox">
      <h2>Inbox ({agent.waiting.toLocaleString("en")})</h2>
      {agent.waiting === 0 ? (
        <p class="muted">No message waits.</p>
      ) : (
        <Result loaded={inbox} what="the messages">
          {(messages) => (
            <ol class="turns">
              {messages.map((message, index) => (
                <Message key={index} message={message} />
              ))}
            </ol>
          )}
        </Result>
      )}
    </section>
  );
}
