// A form made from a JSON Schema.

import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { draftOf, emptyDraft, emptyText, othersPath, readDraft } from "../lib/draft";
import type { Draft, Problems } from "../lib/draft";
import { jsonText } from "../lib/json_text";
import { fieldOf } from "../lib/schema";
import type { Field, Member } from "../lib/schema";
import { visible } from "../lib/visible";
import { readText } from "@verify/json";
import type { Value } from "@verify/value";
import { Icon } from "./icons";
import { Description, Text } from "./text";

/**
 * A form for a value, such as the input of an operation. `onSubmit` is given JSON text. What was typed stays in the
 * form, also while the person signs in again; values are never put into a URL or stored.
 */
export function SchemaForm({
  schema,
  initial,
  what = "Input",
  start = "{}",
  action,
  isBusy,
  onSubmit,
  onChange,
  onEdit,
}: {
  schema: Value | undefined;
  initial?: Value | undefined;
  /** The name of the value, as a label. */
  what?: string;
  /** The text to begin with if only JSON text can express the value. */
  start?: string;
  action: string;
  isBusy: boolean;
  /** `shown` is the input without secrets. */
  onSubmit: (input: string, shown: string) => void;
  /** Called with the JSON text of what was entered so far, without secrets. */
  onChange?: (input: string) => void;
  /** Called whenever the person changes something. */
  onEdit?: () => void;
}) {
  const field = useMemo(() => fieldOf(schema), [schema]);
  const [draft, setDraft] = useState<Draft>(() => draftOf(field, initial));
  const [isText, setIsText] = useState(field.kind === "json");
  const [text, setText] = useState(() => (initial === undefined ? start : jsonText(initial, 2)));
  const [problems, setProblems] = useState<Problems>(new Map());
  const form = useRef<HTMLFormElement>(null);
  const read = (): { value: Value | undefined; problems: Problems } => {
    const found: Problems = new Map();
    if (!isText) return { value: readDraft(field, draft, true, "", found), problems: found };
    try {
      return { value: readText(text), problems: found };
    } catch (error) {
      found.set("", `This is not JSON: ${error instanceof Error ? error.message : ""}.`);
      return { value: undefined, problems: found };
    }
  };
  useEffect(() => {
    const { value } = read();
    if (value !== undefined) onChange?.(jsonText(withoutSecrets(field, value)));
  }, [draft, text, isText]);
  const submit = (event: Event): void => {
    event.preventDefault();
    const { value, problems } = read();
    setProblems(problems);
    if (problems.size === 0 && value !== undefined) {
      return onSubmit(jsonText(value), jsonText(withoutSecrets(field, value)));
    }
    // The first field with a problem, once it is marked.
    requestAnimationFrame(() =>
      form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus(),
    );
  };
  const editText = (text: string): void => {
    setText(text);
    onEdit?.();
  };
  const editDraft = (draft: Draft): void => {
    setDraft(draft);
    onEdit?.();
  };
  const toText = (): void => {
    const value = readDraft(field, draft, true, "", new Map());
    setText(jsonText(value ?? null, 2));
    setIsText(true);
  };
  const toForm = (): void => {
    const { value, problems } = read();
    setProblems(problems);
    if (problems.size > 0) return;
    setDraft(draftOf(field, value));
    setIsText(false);
  };
  return (
    <form class="form" ref={form} onSubmit={submit} noValidate>
      {field.kind !== "json" && (
        <div class="segmented" role="group" aria-label={`How to enter the ${what.toLowerCase()}`}>
          <button type="button" aria-pressed={!isText} onClick={toForm}>
            Form
          </button>
          <button type="button" aria-pressed={isText} onClick={toText}>
            JSON
          </button>
        </div>
      )}
      {isText ? (
        <TextArea
          label={`${what} (JSON)`}
          text={text}
          problem={problems.get("")}
          onText={editText}
          rows={10}
        />
      ) : (
        <FieldView
          // The members of an object are at the top.
          name={field.kind === "object" ? undefined : what}
          field={field}
          draft={draft}
          isRequired
          path=""
          problems={problems}
          onDraft={editDraft}
        />
      )}
      <div class="form-actions">
        <button type="submit" class="button primary" disabled={isBusy}>
          <Icon name="play" /> {isBusy ? "Sending…" : action}
        </button>
        {problems.size > 0 && (
          <p class="field-problem" role="alert">
            {problems.size} {problems.size === 1 ? "field needs" : "fields need"} attention.
          </p>
        )}
      </div>
    </form>
  );
}

/** The value with every secret replaced, for what is shown, such as "copy as curl". */
function withoutSecrets(field: Field, value: Value): Value {
  if (field.isSecret) return "…";
  if (field.kind === "object" && value instanceof Map) {
    const map = value as ReadonlyMap<string, Value>;
    const fields = new Map(field.members.map((member) => [member.name, member.field]));
    return new Map(
      [...map].map(([name, item]) => {
        const inner = fields.get(name);
        return [name, inner ? withoutSecrets(inner, item) : item];
      }),
    );
  }
  if (field.kind === "array" && Array.isArray(value)) {
    return (value as readonly Value[]).map((item) => withoutSecrets(field.items, item));
  }
  return value;
}

interface FieldProps {
  name: string | undefined;
  field: Field;
  draft: Draft;
  isRequired: boolean;
  path: string;
  problems: Problems;
  onDraft: (draft: Draft) => void;
}

function FieldView(props: FieldProps) {
  const { name, field, draft, path, problems, onDraft } = props;
  switch (field.kind) {
    case "object": {
      const members = draft.kind === "object" ? draft.members : {};
      const others = draft.kind === "object" ? (draft.others ?? "") : "";
      const content = field.members.map(({ name, field, isRequired }: Member) => (
        <FieldView
          key={name}
          name={name}
          field={field}
          draft={members[name] ?? emptyText}
          isRequired={isRequired}
          path={path === "" ? name : `${path}/${name}`}
          problems={problems}
          onDraft={(changed) =>
            onDraft({ kind: "object", members: { ...members, [name]: changed }, others })
          }
        />
      ));
      if (field.hasOthers || others !== "") {
        content.push(
          <TextArea
            key="//others"
            label="Other members"
            text={others}
            problem={problems.get(othersPath(path))}
            onText={(text) => onDraft({ kind: "object", members, others: text })}
            rows={2}
            placeholder="{}"
          />,
        );
      }
      if (name === undefined) return <>{content}</>;
      return (
        <fieldset class="fieldset">
          <legend>
            <Label {...props} />
          </legend>
          <Hint field={field} />
          {content}
        </fieldset>
      );
    }
    case "array":
      return <ArrayField {...props} field={field} />;
    case "boolean":
      return <BooleanField {...props} />;
    case "choice":
      return <ChoiceField {...props} options={field.options} />;
    case "json":
      return (
        <TextArea
          label={<Label {...props} />}
          hint={field.description}
          text={draft.kind === "text" ? draft.text : ""}
          problem={problems.get(path)}
          onText={(text) => onDraft({ kind: "text", text })}
          rows={4}
          isSecret={field.isSecret}
          placeholder="JSON"
        />
      );
    default:
      return <TextField {...props} />;
  }
}

function Label({ name, field, isRequired }: FieldProps) {
  return (
    <span>
      <Text text={field.title ?? name ?? ""} most={200} />
      {isRequired ? <span class="required"> required</span> : null}
    </span>
  );
}

function Hint({ field, id }: { field: Field; id?: string }) {
  if (!field.description) return null;
  return (
    <p class="hint" id={id}>
      <Description text={field.description} />
    </p>
  );
}

function TextField(props: FieldProps) {
  const { field, draft, path, problems, isRequired, onDraft } = props;
  const id = useId();
  const problem = problems.get(path);
  const isNumber = field.kind === "number";
  const format = field.kind === "text" ? field.format : undefined;
  const type = field.isSecret
    ? "password"
    : format === "email"
      ? "email"
      : format === "date"
        ? "date"
        : "text";
  return (
    <div class="field">
      <label for={id}>
        <Label {...props} />
      </label>
      <input
        id={id}
        type={type as "text"}
        inputMode={isNumber ? (field.isInteger ? "numeric" : "decimal") : undefined}
        autoComplete={field.isSecret ? "new-password" : "off"}
        spellcheck={false}
        placeholder={placeholderOf(field)}
        value={draft.kind === "text" ? draft.text : ""}
        aria-required={isRequired}
        aria-invalid={problem !== undefined}
        aria-describedby={`${id}-hint ${id}-problem`}
        onInput={(event) => onDraft({ kind: "text", text: event.currentTarget.value })}
      />
      <Hint field={field} id={`${id}-hint`} />
      {problem && (
        <p class="field-problem" id={`${id}-problem`}>
          {problem}
        </p>
      )}
    </div>
  );
}

function placeholderOf(field: Field): string | undefined {
  if (field.kind === "text" && field.format === "date-time") return "2026-01-31T09:00:00Z";
  if (field.kind === "text" && field.format === "uri") return "https://…";
  if (field.kind !== "number") return undefined;
  const { minimum, maximum } = field;
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
  if (minimum !== undefined) return `at least ${minimum}`;
  return maximum === undefined ? undefined : `at most ${maximum}`;
}

/** Characters of a choice that are shown. */
const OPTION_SHOWN = 200;

function ChoiceField(props: FieldProps & { options: readonly Value[] }) {
  const { field, draft, path, problems, isRequired, options, onDraft } = props;
  const id = useId();
  const problem = problems.get(path);
  return (
    <div class="field">
      <label for={id}>
        <Label {...props} />
      </label>
      <select
        id={id}
        value={draft.kind === "text" ? draft.text : ""}
        aria-required={isRequired}
        aria-invalid={problem !== undefined}
        aria-describedby={`${id}-hint ${id}-problem`}
        onChange={(event) => onDraft({ kind: "text", text: event.currentTarget.value })}
      >
        <option value="">–</option>
        {options.map((option, index) => (
          <option key={index} value={String(index)}>
            {visible((typeof option === "string" ? option : jsonText(option)).slice(0, OPTION_SHOWN))}
          </option>
        ))}
      </select>
      <Hint field={field} id={`${id}-hint`} />
      {problem && (
        <p class="field-problem" id={`${id}-problem`}>
          {problem}
        </p>
      )}
    </div>
  );
}

function BooleanField(props: FieldProps) {
  const { field, draft, isRequired, onDraft } = props;
  const id = useId();
  const value = draft.kind === "flag" ? draft.value : undefined;
  return (
    <div class="field">
      <label for={id}>
        <Label {...props} />
      </label>
      <select
        id={id}
        value={value === undefined ? "" : String(value)}
        aria-describedby={`${id}-hint`}
        onChange={(event) => {
          const chosen = event.currentTarget.value;
          onDraft({ kind: "flag", value: chosen === "" ? undefined : chosen === "true" });
        }}
      >
        {!isRequired && <option value="">–</option>}
        <option value="false">false</option>
        <option value="true">true</option>
      </select>
      <Hint field={field} id={`${id}-hint`} />
    </div>
  );
}

function ArrayField(props: FieldProps & { field: Field & { kind: "array" } }) {
  const { field, draft, path, problems, onDraft } = props;
  const items = draft.kind === "array" ? draft.items : [];
  const set = (items: readonly Draft[]): void => onDraft({ kind: "array", items });
  const isFull = field.maxItems !== undefined && items.length >= field.maxItems;
  return (
    <fieldset class="fieldset">
      <legend>
        <Label {...props} />
      </legend>
      <Hint field={field} />
      {items.map((item, index) => (
        <div class="array-item" key={index}>
          <FieldView
            name={`${index + 1}`}
            field={field.items}
            draft={item}
            isRequired
            path={path === "" ? String(index) : `${path}/${index}`}
            problems={problems}
            onDraft={(changed) => set(items.map((old, at) => (at === index ? changed : old)))}
          />
          <button
            type="button"
            class="icon-button"
            aria-label={`Remove item ${index + 1}`}
            onClick={() => set(items.filter((_, at) => at !== index))}
          >
            <Icon name="cross" />
          </button>
        </div>
      ))}
      <button
        type="button"
        class="button small"
        disabled={isFull}
        onClick={() => set([...items, emptyDraft(field.items)])}
      >
        <Icon name="plus" /> Add an item
      </button>
    </fieldset>
  );
}

export function TextArea({
  label,
  text,
  onText,
  problem,
  hint,
  rows,
  placeholder,
  isSecret = false,
}: {
  label: preact.ComponentChildren;
  text: string;
  onText: (text: string) => void;
  problem?: string | undefined;
  hint?: string | undefined;
  rows: number;
  placeholder?: string;
  isSecret?: boolean;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {isSecret ? (
        <input
          id={id}
          type="password"
          autoComplete="new-password"
          value={text}
          onInput={(event) => onText(event.currentTarget.value)}
        />
      ) : (
        <textarea
          id={id}
          class="mono"
          rows={rows}
          spellcheck={false}
          placeholder={placeholder}
          value={text}
          aria-invalid={problem !== undefined}
          aria-describedby={`${id}-hint ${id}-problem`}
          onInput={(event) => onText(event.currentTarget.value)}
        />
      )}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          <Text text={hint} />
        </p>
      )}
      {problem && (
        <p class="field-problem" id={`${id}-problem`}>
          <Text text={problem} />
        </p>
      )}
    </div>
  );
}
