// An editor for one value: JSON, or plain text for a string. What is saved is the text that was typed,
// so numbers keep their digits.

import { useRef, useState } from "preact/hooks";
import { TextArea } from "../../components/form";
import { Icon } from "../../components/icons";
import { jsonText } from "../../lib/json_text";
import { JsonError, readText } from "@verify/json";
import type { Value } from "@verify/value";

export function ValueEditor({
  initial,
  currentId,
  action,
  isDisabled = false,
  onSave,
  onClose,
}: {
  initial: Value;
  /** The ID of the value that is stored now, to notice that somebody else changed it. */
  currentId: string | undefined;
  action: string;
  isDisabled?: boolean;
  /** Called with JSON text. Resolves with whether it was saved. */
  onSave: (value: string) => Promise<boolean>;
  onClose: () => void;
}) {
  const isString = typeof initial === "string";
  const [isPlain, setIsPlain] = useState(isString);
  const [text, setText] = useState(() => (isString ? initial : jsonText(initial, 2)));
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const openedId = useRef(currentId);
  const isStale = openedId.current !== currentId;
  const json = (): string => (isPlain ? JSON.stringify(text) : text);
  const change = (next: boolean): void => {
    if (next === isPlain) return;
    setProblem(undefined);
    if (!next) {
      setText(JSON.stringify(text));
      return setIsPlain(false);
    }
    const value = parsed(text);
    if (typeof value !== "string") return setProblem("This is not a string, so it has no plain text.");
    setText(value);
    setIsPlain(true);
  };
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    const found = problemIn(json());
    setProblem(found);
    if (found !== undefined) return;
    setIsBusy(true);
    try {
      if (await onSave(json())) onClose();
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <form class="form" onSubmit={(event) => void save(event)}>
      <div class="segmented" role="group" aria-label="How to enter the value">
        <button type="button" aria-pressed={isPlain} onClick={() => change(true)}>
          Text
        </button>
        <button type="button" aria-pressed={!isPlain} onClick={() => change(false)}>
          JSON
        </button>
      </div>
      <TextArea
        label={isPlain ? "Value (text)" : "Value (JSON)"}
        text={text}
        onText={setText}
        problem={problem}
        rows={isPlain ? 5 : 12}
      />
      {isStale && (
        <p class="callout waiting" role="alert">
          <Icon name="warn" /> The stored value has changed since you opened it. Saving replaces it.
        </p>
      )}
      <div class="form-actions">
        <button type="submit" class="button primary" disabled={isBusy || isDisabled}>
          <Icon name="check" /> {isBusy ? "Saving…" : action}
        </button>
        <button type="button" class="button" onClick={onClose}>
          Close
        </button>
      </div>
    </form>
  );
}

function parsed(text: string): Value | undefined {
  try {
    return readText(text);
  } catch {
    return undefined;
  }
}

/** Why a text is not JSON, with the line. */
function problemIn(text: string): string | undefined {
  try {
    readText(text);
    return undefined;
  } catch (error) {
    const place = error instanceof JsonError ? ` in line ${error.line}` : "";
    return `This is not JSON${place}: ${error instanceof Error ? error.message : ""}.`;
  }
}
