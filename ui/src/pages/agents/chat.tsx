// Talking to an agent, by session.

import { useState } from "preact/hooks";
import { actOnAgent, listSessions, readConversation } from "../../api/agents";
import type { Agent, Conversation, Said } from "../../api/agents";
import { messageOf } from "../../api/client";
import { TextArea } from "../../components/form";
import { Icon } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { FieldProblem } from "../../components/states";
import { Text } from "../../components/text";
import { Time } from "../../components/time";
import { useLoad } from "../../lib/load";
import { paths } from "../../lib/router";
import { visible } from "../../lib/visible";
import { asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";

/** Turns of an earlier session that are shown. */
const TURNS_SHOWN = 20;
/** How long the page waits for a response before it shows the job instead. */
const WAIT_MS = 60_000;

interface Exchange {
  readonly said: string;
  readonly job: string;
  readonly response: Value | undefined;
}

const NOTHING: Conversation = { said: [], isTruncated: false };

export function Chat({ agent, onSent }: { agent: Agent; onSent: () => void }) {
  const [text, setText] = useState("");
  const [session, setSession] = useState("");
  /** The session that was chosen, of which what was said before is shown. */
  const [chosen, setChosen] = useState("");
  const [exchanges, setExchanges] = useState<readonly Exchange[]>([]);
  const [isBusy, setIsBusy] = useState(false);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const sessions = useLoad((signal) => listSessions(agent.id, signal).catch(() => []), [agent.id, agent.turns]);
  const earlier = useLoad(
    (signal) =>
      chosen === "" ? Promise.resolve(NOTHING) : readConversation(agent.id, chosen, TURNS_SHOWN, signal),
    [agent.id, chosen],
  );
  const choose = (id: string): void => {
    setSession(id);
    setChosen(id);
    setExchanges([]);
  };
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    setIsBusy(true);
    setProblem(undefined);
    const more = session === "" ? {} : { sessionId: session };
    try {
      const job = await actOnAgent("chat", { agentId: agent.id, message: text, ...more }, WAIT_MS);
      const output = asMap(job.output);
      setExchanges((before) => [...before, { said: text, job: job.id, response: output?.get("response") }]);
      setSession(asText(output?.get("sessionId")) ?? session);
      setText("");
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setIsBusy(false);
      onSent();
    }
  };
  return (
    <section class="card" aria-label="Chat">
      <h2>Chat</h2>
      {chosen !== "" && earlier.error !== undefined && (
        <p class="field-problem" role="alert">
          What was said before could not be read: <Text text={messageOf(earlier.error)} />
        </p>
      )}
      {earlier.value?.isTruncated && (
        <p class="muted">
          Only the latest {TURNS_SHOWN} turns are shown.{" "}
          <a href={paths.workspace(`g/${agent.id}/sessions/${chosen}`)}>The complete session</a>
        </p>
      )}
      <div role="log" aria-label="Conversation">
        {earlier.value !== undefined && earlier.value.said.length > 0 && (
          <ol class="turns">
            {earlier.value.said.map((said, index) => (
              <Earlier key={index} said={said} />
            ))}
          </ol>
        )}
        <ol class="turns">
          {exchanges.map(({ said, job, response }, index) => (
            <li key={index} class="turn">
              <p class="bubble received">
                <Text text={said} />
              </p>
              {typeof response === "string" ? (
                <p class="bubble">
                  <Text text={response} />
                </p>
              ) : response === undefined ? (
                <p class="muted">There is no response yet.</p>
              ) : (
                <JsonView value={response} label="the response" />
              )}
              <a class="small" href={paths.job(job)}>
                Job
              </a>
            </li>
          ))}
        </ol>
      </div>
      <form class="form" onSubmit={(event) => void send(event)}>
        <div class="field">
          <label for="agent-session">Session</label>
          <select
            id="agent-session"
            value={session}
            onChange={(event) => choose(event.currentTarget.value)}
          >
            <option value="">a new one</option>
            {session !== "" && !sessions.value?.some(({ id }) => id === session) && (
              <option value={session}>{visible(session)}</option>
            )}
            {sessions.value?.map(({ id, title, turns }) => (
              <option key={id} value={id}>
                {visible((title ?? id).slice(0, 60))} ({turns} {turns === 1 ? "turn" : "turns"})
              </option>
            ))}
          </select>
        </div>
        <TextArea label="Message" text={text} onText={setText} rows={3} />
        <div class="form-actions">
          <button type="submit" class="button primary" disabled={isBusy || text.trim() === ""}>
            <Icon name="message" /> {isBusy ? "Waiting for the response…" : "Send"}
          </button>
          <FieldProblem text={problem} />
        </div>
      </form>
    </section>
  );
}

/** An entry of what was said before. */
function Earlier({ said }: { said: Said }) {
  const { role, at, content, tools } = said;
  return (
    <li class="turn">
      <p class="row wrap muted">
        <span>{ROLES[role] ?? <Text text={role} most={40} />}</span>
        {at !== undefined && <Time at={at} />}
        {tools.map((tool, index) => (
          <span class="tag" key={index}>
            calls <Text text={tool} most={80} />
          </span>
        ))}
      </p>
      {typeof content !== "string" ? (
        <JsonView value={content} label="the message" />
      ) : content === "" ? null : (
        <p class={role === "user" ? "bubble received" : "bubble"}>
          <Text text={content} />
        </p>
      )}
    </li>
  );
}

const ROLES: Readonly<Record<string, string>> = {
  user: "you or another caller",
  assistant: "the agent",
  tool: "result of a tool",
  system: "instructions",
};
