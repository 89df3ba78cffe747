// The timeline of an agent: one entry for each turn, newest first, with what it changed of the state.

import { useState } from "preact/hooks";
import { readTurns } from "../../api/agents";
import type { Agent, AgentTurn } from "../../api/agents";
import { JsonView } from "../../components/json_view";
import { Result } from "../../components/states";
import { Text } from "../../components/text";
import { Duration, Time } from "../../components/time";
import { usageOf } from "../../lib/agents";
import { jsonText } from "../../lib/json_text";
import { useLoad } from "../../lib/load";
import { paths } from "../../lib/router";
import { stateChanges } from "../../lib/state_diff";
import { Message } from "./message";

const PAGE = 10;

export function Turns({ agent }: { agent: Agent }) {
  const [shown, setShown] = useState(PAGE);
  const from = Math.max(0, agent.turns - shown);
  const turns = useLoad(
    (signal) => readTurns(agent.id, from, agent.turns - from, signal),
    [agent.id, agent.turns, from],
  );
  return (
    <section class="card" aria-label="Timeline">
      <h2>Timeline ({agent.turns.toLocaleString("en")})</h2>
      {agent.turns === 0 ? (
        <p class="muted">The agent has not had a turn yet.</p>
      ) : (
        <Result loaded={turns} what="the turns">
          {(found) => (
            <ol class="turns">
              {[...found].reverse().map((turn) => (
                <Turn key={turn.index} agent={agent.id} turn={turn} />
              ))}
            </ol>
          )}
        </Result>
      )}
      {from > 0 && (
        <button type="button" class="button small" onClick={() => setShown(shown + PAGE)}>
          Show earlier turns ({from.toLocaleString("en")})
        </button>
      )}
    </section>
  );
}

function Turn({ agent, turn }: { agent: string; turn: AgentTurn }) {
  if (turn.isLarge) {
    return (
      <li class="turn">
        <a href={paths.workspace(`g/${agent}/timeline/${turn.index}`)}>Turn {turn.index}</a>
        <p class="muted">This turn is too large to be shown in the list.</p>
      </li>
    );
  }
  return (
    <li class="turn" id={`turn-${turn.index}`} data-turn={turn.index}>
      <p class="row wrap">
        <a href={paths.workspace(`g/${agent}/timeline/${turn.index}`)}>Turn {turn.index}</a>
        <Time at={turn.start} />
        <Duration ms={Math.max(0, turn.end - turn.start)} />
        <span class="muted">
          <Text text={turn.op} most={80} />
        </span>
        {usageOf(turn.result).map((words) => (
          <span class="tag" key={words}>
            <Text text={words} most={120} />
          </span>
        ))}
      </p>
      {turn.messages.length > 0 && (
        <ol class="turns">
          {turn.messages.map((message, index) => (
            <Message key={index} message={message} />
          ))}
        </ol>
      )}
      <StateDiff turn={turn} />
      {turn.result !== undefined && (
        <details open>
          <summary>Result</summary>
          <JsonView value={turn.result} label={`the result of turn ${turn.index}`} />
        </details>
      )}
    </li>
  );
}

function StateDiff({ turn }: { turn: AgentTurn }) {
  if (turn.before === undefined || turn.after === undefined) return null;
  const changes = stateChanges(turn.before, turn.after);
  if (changes.length === 0) return <p class="muted">The state did not change.</p>;
  return (
    <table class="diff">
      <caption class="sr-only">Changes of the state</caption>
      <tbody>
        {changes.map(({ path, before, after }) => (
          <tr key={path} class={before === undefined ? "diff-added" : "diff-changed"}>
            <th scope="row">
              <Text text={path === "" ? "state" : path} most={120} />
            </th>
            <td>
              {before !== undefined && (
                <>
                  <del>
                    <Text text={jsonText(before)} most={200} />
                  </del>{" "}
                  →{" "}
                </>
              )}
              {after === undefined ? (
                <span class="muted">removed</span>
              ) : (
                <Text text={jsonText(after)} most={200} />
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
