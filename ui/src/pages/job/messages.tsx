// The conversation with a job: what it asked, what it was sent, and a composer.

import { useState } from "preact/hooks";
import { messageOf, newKey } from "../../api/client";
import { allowed, sendMessage } from "../../api/jobs";
import type { Job } from "../../api/jobs";
import { Id } from "../../components/copy";
import { Icon } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { SchemaForm, TextArea } from "../../components/form";
import { Text } from "../../components/text";
import { Time } from "../../components/time";
import { answerMessage } from "../../lib/requests";
import { paths } from "../../lib/router";
import { readText } from "@verify/json";
import { asMap, asText } from "@verify/value";
import { NoRecords } from "./no_records";
import type { ListedRecord, Records } from "./records";

export function Messages({ job, read }: { job: Job; read: Records }) {
  const { records } = read;
  const turns = records.filter(
    ({ record }) => record.has("trigger") || record.has("message") || isInteractiveOutput(record),
  );
  return (
    <section class="card">
      <h2>Messages</h2>
      {records.length === 0 && <NoRecords {...read} />}
      {records.length > 0 && turns.length === 0 && (
        <p class="muted">No record of this job mentions a message.</p>
      )}
      <ol class="turns">
        {turns.map((turn) => (
          <Turn key={turn.index} job={job.id} turn={turn} />
        ))}
      </ol>
      {job.queueDepth > 0 && (
        <p class="muted">
          {job.queueDepth} {job.queueDepth === 1 ? "message waits" : "messages wait"} in the queue.
        </p>
      )}
      {allowed(job.status).message ? (
        <Composer job={job} />
      ) : (
        <p class="muted">The job has ended and accepts no more messages.</p>
      )}
    </section>
  );
}

const isInteractiveOutput = (record: ListedRecord["record"]): boolean =>
  record.has("output") && /_REQUIRED$/.test(asText(record.get("status")) ?? "");

function Turn({ job, turn }: { job: string; turn: ListedRecord }) {
  const { record, index } = turn;
  const trigger = asMap(record.get("trigger"));
  const message = asText(record.get("message"));
  const output = isInteractiveOutput(record) ? record.get("output") : undefined;
  const received = record.get("received");
  const content = asText(asMap(received)?.get("content"));
  return (
    <li class="turn">
      <p class="row wrap muted">
        <a href={paths.record(job, index)}>record {index}</a>
        <Time at={Number(record.get("updated") ?? 0)} />
      </p>
      {trigger && (
        <p class="row wrap">
          <Icon name="message" /> received <Id id={asText(trigger.get("messageId")) ?? ""} label="the message's ID" />
          {asText(trigger.get("from")) && (
            <>
              from <Id id={asText(trigger.get("from")) ?? ""} label="the DID" />
            </>
          )}
        </p>
      )}
      {content !== undefined ? (
        <p class="bubble received">
          <Text text={content} />
        </p>
      ) : (
        received !== undefined && (
          <JsonView value={received} label={`the message of record ${index}`} />
        )
      )}
      {message !== undefined && (
        <p class="bubble">
          <Text text={message} />
        </p>
      )}
      {output !== undefined && <JsonView value={output} label={`the output of record ${index}`} />}
    </li>
  );
}

function Composer({ job }: { job: Job }) {
  const [text, setText] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [said, setSaid] = useState<{ text: string; isBad: boolean } | undefined>(undefined);
  const schema = asMap(job.output)?.get("schema");
  const send = async (body: string): Promise<void> => {
    setIsBusy(true);
    setSaid(undefined);
    try {
      const receipt = asMap(await sendMessage(job.id, body, newKey()));
      const depth = receipt?.get("queueDepth");
      const queued = typeof depth === "bigint" && depth > 0n ? ` (${depth} in the queue)` : "";
      setSaid({ text: `The message was accepted${queued}.`, isBad: false });
      setText("");
    } catch (error) {
      setSaid({ text: messageOf(error), isBad: true });
    } finally {
      setIsBusy(false);
    }
  };
  const submit = (event: Event): void => {
    event.preventDefault();
    if (text.trim() !== "") void send(messageBody(text));
  };
  return (
    <div class="composer">
      {asMap(schema) && (
        <SchemaForm
          schema={schema}
          action="Send the answer"
          isBusy={isBusy}
          onSubmit={(answer) => void send(answerMessage(job.output, answer))}
        />
      )}
      <form class="form" onSubmit={submit}>
        <TextArea
          label="Message"
          text={text}
          onText={setText}
          rows={3}
          hint="Text is sent as {&quot;content&quot;: …}; what reads as a JSON object is sent as it is."
        />
        <div class="row wrap">
          <button type="submit" class="button primary" disabled={isBusy || text.trim() === ""}>
            <Icon name="message" /> {isBusy ? "Sending…" : "Send"}
          </button>
          {job.status === "INPUT_REQUIRED" && (
            <>
              <button
                type="button"
                class="button"
                disabled={isBusy}
                title='Sends {"approved":true}'
                onClick={() => void send('{"approved":true}')}
              >
                <Icon name="check" /> Approve
              </button>
              <button
                type="button"
                class="button"
                disabled={isBusy}
                title='Sends {"approved":false}'
                onClick={() => void send('{"approved":false}')}
              >
                <Icon name="cross" /> Decline
              </button>
            </>
          )}
        </div>
        {said && (
          <p class={said.isBad ? "field-problem" : "muted"} role={said.isBad ? "alert" : "status"}>
            <Text text={said.text} />
          </p>
        )}
      </form>
    </div>
  );
}

/** The JSON text of a message: an object as it was written, anything else as content. */
export function messageBody(text: string): string {
  const trimmed = text.trim();
  if (trimmed.startsWith("{")) {
    try {
      readText(trimmed);
      return trimmed;
    } catch {
      // Text that only looks like JSON.
    }
  }
  return `{"content":${JSON.stringify(text)}}`;
}
