// Questions of agents and jobs to people, each with a form for its answer.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, messageOf } from "../api/client";
import { answerRequest, listRequests, readRequest } from "../api/requests";
import { jsonText } from "../lib/json_text";
import { useInterval, useLoad } from "../lib/load";
import type { Loaded } from "../lib/load";
import { answerForm, endSentence, questionText, shownRequests } from "../lib/requests";
import type { Asker, HumanRequest } from "../lib/requests";
import { paths } from "../lib/router";
import { visible } from "../lib/visible";
import { readText } from "@verify/json";
import { asText } from "@verify/value";
import type { Value } from "@verify/value";
import { shorten } from "./copy";
import { SchemaForm, TextArea } from "./form";
import { Icon } from "./icons";
import { JsonView } from "./json_view";
import { Text } from "./text";
import { Time } from "./time";

const REFRESH_MS = 3000;
const GONE = "This no longer waits for an answer.";
const GONE_FOR_GOOD = "This no longer waits for an answer: somebody else has answered it, or it was removed.";

/** The questions of one agent or of all, loaded again every few seconds. */
export function useRequests(agent: string | undefined, isAll: boolean): Loaded<HumanRequest[]> {
  const requests = useLoad((signal) => listRequests({ agent, isAll }, signal), [agent, isAll]);
  useInterval(requests.reload, REFRESH_MS);
  return requests;
}

export function RequestList({
  listed,
  hasAsker,
  reload,
  empty,
}: {
  listed: readonly HumanRequest[];
  /** Whether it is said who asks. */
  hasAsker: boolean;
  reload: () => void;
  empty: preact.ComponentChildren;
}) {
  // Questions that somebody types an answer to here, or has answered here.
  const [used, setUsed] = useState<ReadonlyMap<string, HumanRequest>>(new Map());
  const use = (request: HumanRequest, isUsed: boolean): void =>
    setUsed((before) => {
      if (before.has(request.id) === isUsed) return before;
      const after = new Map(before);
      if (isUsed) after.set(request.id, request);
      else after.delete(request.id);
      return after;
    });
  const shown = shownRequests(listed, used);
  if (shown.length === 0) return <>{empty}</>;
  const open = new Set(listed.filter(({ status }) => status === "OPEN").map(({ id }) => id));
  return (
    <ol class="cards">
      {shown.map((request) => (
        <RequestCard
          key={request.id}
          request={request}
          isOpen={open.has(request.id)}
          hasAsker={hasAsker}
          onUse={(isUsed) => use(request, isUsed)}
          reload={reload}
        />
      ))}
    </ol>
  );
}

function RequestCard({
  request,
  isOpen,
  hasAsker,
  onUse,
  reload,
}: {
  request: HumanRequest;
  isOpen: boolean;
  hasAsker: boolean;
  onUse: (isUsed: boolean) => void;
  reload: () => void;
}) {
  // What was entered here, as it is shown. Undefined if nothing was.
  const [entered, setEntered] = useState<string | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [sent, setSent] = useState<Value | undefined>(undefined);
  const outcome = useRef<HTMLParagraphElement>(null);
  const answer = async (value: Value, shown = value): Promise<void> => {
    setIsBusy(true);
    setProblem(undefined);
    onUse(true);
    try {
      await answerRequest(request.id, value);
      setSent(shown);
    } catch (error) {
      // If somebody else was faster, the card says what became of the question once it is known.
      const isGone = error instanceof ApiError && (error.status === 404 || error.status === 409);
      setProblem(isGone ? GONE : messageOf(error));
    } finally {
      setIsBusy(false);
      reload();
    }
  };
  const enter = (shown: string | undefined): void => {
    setEntered(shown);
    onUse(shown !== undefined || problem !== undefined);
  };
  const isOver = sent !== undefined || !isOpen;
  // The button that had the focus is gone.
  useEffect(() => {
    if (sent !== undefined) outcome.current?.focus();
  }, [sent]);
  const heading = `request-${request.id}`;
  return (
    <li>
      <article class="card" aria-labelledby={heading} data-request={request.id}>
        <p class="row wrap muted">
          {hasAsker && request.asker && <AskerLink asker={request.asker} />}
          <Time at={request.created} />
          {request.session !== undefined && (
            <span class="tag">
              session <Text text={request.session} most={40} />
            </span>
          )}
        </p>
        <Question id={heading} question={request.question} />
        {sent !== undefined ? (
          <p class="callout good" role="status" tabIndex={-1} ref={outcome}>
            <Icon name="check" />
            <span class="callout-text">
              You answered <AnswerText answer={sent} />. The {request.asker?.kind ?? "agent"} gets it as a message.
            </span>
          </p>
        ) : isOver ? (
          <Over request={request} entered={entered} onDismiss={() => enter(undefined)} />
        ) : (
          <AnswerForm
            request={request}
            isBusy={isBusy}
            entered={entered}
            onEnter={enter}
            onAnswer={(value, shown) => void answer(value, shown)}
          />
        )}
        {problem !== undefined && !isOver && (
          <p class="field-problem" role="alert">
            <Text text={problem} />
          </p>
        )}
      </article>
    </li>
  );
}

function AskerLink({ asker: { kind, id } }: { asker: Asker }) {
  if (kind === "agent") {
    return (
      <span>
        from{" "}
        <a href={paths.agent(id)}>
          <Text text={id} most={128} />
        </a>
      </span>
    );
  }
  return (
    <span>
      from{" "}
      <a href={paths.job(id)} title={visible(id)}>
        job <code>{visible(shorten(id))}</code>
      </a>
    </span>
  );
}

interface AnswerProps {
  request: HumanRequest;
  isBusy: boolean;
  entered: string | undefined;
  /** Given what was entered so far, as it may be shown; undefined if nothing is. */
  onEnter: (shown: string | undefined) => void;
  /** `shown` is the answer without secrets. */
  onAnswer: (answer: Value, shown?: Value) => void;
}

function AnswerForm(props: AnswerProps) {
  const { request, isBusy, onAnswer } = props;
  switch (answerForm(request)) {
    case "options":
      return <Options options={request.options ?? []} isBusy={isBusy} onAnswer={onAnswer} />;
    case "schema":
      return <SchemaAnswer {...props} />;
    case "text":
      return <TextAnswer {...props} />;
  }
}

function SchemaAnswer({ request, isBusy, onEnter, onAnswer }: AnswerProps) {
  const [isEdited, setIsEdited] = useState(false);
  // Without secrets. Empty while nothing can be read.
  const [shown, setShown] = useState("");
  useEffect(() => {
    if (isEdited) onEnter(shown);
  }, [isEdited, shown]);
  return (
    <SchemaForm
      schema={request.schema}
      what="Answer"
      start=""
      action="Answer"
      isBusy={isBusy}
      onEdit={() => setIsEdited(true)}
      onChange={setShown}
      onSubmit={(input, shown) => onAnswer(readText(input), readText(shown))}
    />
  );
}

function TextAnswer({ isBusy, entered: text = "", onEnter, onAnswer }: AnswerProps) {
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        onAnswer(text);
      }}
    >
      <TextArea
        label="Answer"
        text={text}
        onText={(text) => onEnter(text === "" ? undefined : text)}
        rows={2}
      />
      <div class="form-actions">
        <button type="submit" class="button primary" disabled={isBusy || text.trim() === ""}>
          <Icon name="message" /> {isBusy ? "Sending…" : "Answer"}
        </button>
      </div>
    </form>
  );
}

function Question({ id, question }: { id: string; question: Value }) {
  const text = questionText(question);
  if (text !== undefined) {
    return (
      <h2 id={id} class="question">
        <Text text={text} />
      </h2>
    );
  }
  return (
    <>
      <h2 id={id}>Question</h2>
      <JsonView value={question} label="the question" />
    </>
  );
}

function AnswerText({ answer }: { answer: Value }) {
  return (
    <strong>
      <Text text={asText(answer) ?? jsonText(answer)} most={500} />
    </strong>
  );
}

function Options({
  options,
  isBusy,
  onAnswer,
}: {
  options: readonly Value[];
  isBusy: boolean;
  onAnswer: (answer: Value) => void;
}) {
  if (options.length === 0) return <p class="muted">No answer is accepted: the list of options is empty.</p>;
  return (
    <div class="row wrap" role="group" aria-label="Answers">
      {options.map((option, index) => (
        <button
          key={index}
          type="button"
          class="button"
          disabled={isBusy}
          onClick={() => onAnswer(option)}
        >
          <Text text={asText(option) ?? jsonText(option)} most={200} />
        </button>
      ))}
    </div>
  );
}

/** What became of a question that this page did not answer. */
function Over({
  request,
  entered,
  onDismiss,
}: {
  request: HumanRequest;
  /** What was entered here meanwhile. */
  entered: string | undefined;
  onDismiss: () => void;
}) {
  const known = request.status === "OPEN" ? undefined : request;
  const found = useLoad(
    async (signal) => ({ request: known ?? (await readRequest(request, signal)) }),
    [request.id, request.status],
  );
  const now = found.value?.request;
  return (
    <div class={known ? "callout" : "callout waiting"} role={known ? undefined : "status"}>
      <Icon name={now?.status === "ANSWERED" ? "check" : "warn"} />
      <div>
        <p class="callout-text">
          {now?.status === "ANSWERED" && now.answer !== undefined ? (
            <>
              {known ? "Answered: " : "Somebody else has answered this: "}
              <AnswerText answer={now.answer} />
            </>
          ) : (
            ((now && endSentence(now)) ?? (found.isLoading ? GONE : GONE_FOR_GOOD))
          )}
        </p>
        {entered !== undefined && (
          <>
            <p>
              What you typed was not sent{entered === "" ? "." : ": "}
              <Text text={entered} />
            </p>
            <p>
              <button type="button" class="button small" onClick={onDismiss}>
                Discard it
              </button>
            </p>
          </>
        )}
      </div>
    </div>
  );
}
