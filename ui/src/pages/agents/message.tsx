// A message to an agent.

import type { AgentMessage } from "../../api/agents";
import { Id } from "../../components/copy";
import { JsonView } from "../../components/json_view";
import { Text } from "../../components/text";
import { Time } from "../../components/time";

export function Message({ message }: { message: AgentMessage }) {
  return (
    <li class="turn">
      <p class="row wrap muted">
        <span class="row">
          from <Id id={message.from} label="the DID" />
        </span>
        {message.at !== undefined && <Time at={message.at} />}
        {message.session !== undefined && (
          <span class="tag">
            session <Text text={message.session} most={40} />
          </span>
        )}
      </p>
      {typeof message.content === "string" ? (
        <p class="bubble received">
          <Text text={message.content} />
        </p>
      ) : (
        <JsonView value={message.content} label={`the message ${message.id}`} />
      )}
    </li>
  );
}
