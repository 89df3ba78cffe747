// The value at a path: what it is, and what can be done with it.

import { useEffect, useRef, useState } from "preact/hooks";
import { messageOf } from "../../api/client";
import {
  appendValue,
  canGrow,
  copyValue,
  deleteValue,
  isKeyed,
  isWritable,
  readValue,
  segmentsOf,
  writeValue,
} from "../../api/values";
import type { Described, ReadValue } from "../../api/values";
import { Id } from "../../components/copy";
import { Confirm } from "../../components/dialog";
import { Fact } from "../../components/facts";
import { Icon } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { Result } from "../../components/states";
import { Text } from "../../components/text";
import { useLoad } from "../../lib/load";
import { navigate, paths } from "../../lib/router";
import { ValueEditor } from "./editor";

type Task = "edit" | "add" | "copy";

export function Detail({
  path,
  described,
  onChanged,
}: {
  path: string;
  described: Described;
  onChanged: () => void;
}) {
  const [task, setTask] = useState<Task | undefined>(undefined);
  const [isAsked, setIsAsked] = useState(false);
  const [said, setSaid] = useState<{ text: string; isBad: boolean } | undefined>(undefined);
  const isContainer = described.count !== undefined || !described.exists;
  const act = async (text: string, action: () => Promise<void>): Promise<boolean> => {
    setSaid(undefined);
    try {
      await action();
      setTask(undefined);
      setSaid({ text, isBad: false });
      onChanged();
      return true;
    } catch (error) {
      setSaid({ text: messageOf(error), isBad: true });
      return false;
    }
  };
  const remove = async (): Promise<void> => {
    if (await act("It was deleted.", () => deleteValue(path))) {
      navigate(paths.workspace(segmentsOf(path).slice(0, -1).join("/")));
    }
  };
  const choose = (next: Task): void => {
    setSaid(undefined);
    setTask(task === next ? undefined : next);
  };
  return (
    <section class="card" aria-label="Value">
      <h2>
        <Text text={segmentsOf(path).at(-1) ?? path} most={80} />
      </h2>
      <Facts path={path} described={described} />
      <div class="row wrap">
        {isWritable(path) && (
          <button type="button" class="button" aria-expanded={task === "edit"} onClick={() => choose("edit")}>
            <Icon name="edit" /> Edit
          </button>
        )}
        {isContainer && canGrow(path) && (
          <button type="button" class="button" aria-expanded={task === "add"} onClick={() => choose("add")}>
            <Icon name="plus" /> Add an entry
          </button>
        )}
        {described.exists && (
          <button type="button" class="button" aria-expanded={task === "copy"} onClick={() => choose("copy")}>
            <Icon name="copy" /> Copy to…
          </button>
        )}
        {isWritable(path) && (
          <button type="button" class="button" onClick={() => setIsAsked(true)}>
            <Icon name="trash" /> Delete
          </button>
        )}
      </div>
      {said && (
        <p class={said.isBad ? "field-problem" : "muted"} role={said.isBad ? "alert" : "status"}>
          <Text text={said.text} />
        </p>
      )}
      {task === "add" && (
        <AddEntry
          path={path}
          isNamed={!described.exists || isKeyed(described.type)}
          onSave={(to, value) =>
            act("It was added.", () => (to === undefined ? appendValue(path, value) : writeValue(to, value)))
          }
          onClose={() => setTask(undefined)}
        />
      )}
      {task === "copy" && (
        <CopyTo
          from={path}
          onCopy={(to) => act(`It was copied to ${to}.`, () => copyValue(path, to))}
        />
      )}
      {described.exists && (
        <Content
          path={path}
          described={described}
          isEdited={task === "edit"}
          onSave={(value) => act("It was saved.", () => writeValue(path, value))}
          onClose={() => setTask(undefined)}
        />
      )}
      {isAsked && (
        <Confirm
          title="Delete this value?"
          action="Delete it"
          isDangerous
          onConfirm={() => void remove()}
          onClose={() => setIsAsked(false)}
        >
          <p>
            <code>
              <Text text={path} most={300} />
            </code>{" "}
            {described.count === undefined || described.count === 0
              ? "is deleted."
              : `and its ${described.count.toLocaleString("en")} entries are deleted.`}
          </p>
        </Confirm>
      )}
    </section>
  );
}

function Facts({ path, described }: { path: string; described: Described }) {
  return (
    <dl class="facts narrow">
      <Fact name="Path">
        <Id id={path} label="the path" isFull />
      </Fact>
      <Fact name="Type">
        {described.exists ? described.type : "nothing yet"}
        {described.count !== undefined && `, ${described.count.toLocaleString("en")} entries`}
      </Fact>
      {described.id !== undefined && (
        <Fact name="Value ID">
          <Id id={described.id} label="the Value ID" />
        </Fact>
      )}
    </dl>
  );
}

/** The value itself, if it is small enough to be read in one piece. */
function Content({
  path,
  described,
  isEdited,
  onSave,
  onClose,
}: {
  path: string;
  described: Described;
  isEdited: boolean;
  onSave: (value: string) => Promise<boolean>;
  onClose: () => void;
}) {
  const read = useLoad((signal) => readValue(path, signal), [path]);
  // The same path: what is shown, and what is typed, stays until the new value is there.
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) read.reload();
    isFirst.current = false;
  }, [described.id]);
  return (
    <Result loaded={read} what="the value">
      {(found: ReadValue) =>
        found.value === undefined ? (
          <p class="muted">
            This value is too large to be shown in one piece
            {isEdited ? ", and cannot be edited here" : ""}. Open its entries one by one.
          </p>
        ) : isEdited ? (
          <ValueEditor
            key={path}
            initial={found.value}
            currentId={described.id}
            action="Save"
            onSave={onSave}
            onClose={onClose}
          />
        ) : (
          <JsonView value={found.value} label="the value" />
        )
      }
    </Result>
  );
}

function AddEntry({
  path,
  isNamed,
  onSave,
  onClose,
}: {
  path: string;
  /** Whether the entry gets a name; else it is appended. */
  isNamed: boolean;
  onSave: (to: string | undefined, value: string) => Promise<boolean>;
  onClose: () => void;
}) {
  const [name, setName] = useState("");
  const problem =
    isNamed && name.split("/").some((segment) => segment === "") && name !== ""
      ? "No part of the name may be empty."
      : undefined;
  return (
    <div class="form">
      {isNamed && (
        <div class="field">
          <label for="entry-name">Name</label>
          <input
            id="entry-name"
            type="text"
            autoComplete="off"
            spellcheck={false}
            value={name}
            aria-invalid={problem !== undefined}
            aria-describedby="entry-name-hint"
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <p class={problem ? "field-problem" : "hint"} id="entry-name-hint">
            {problem ?? "A slash creates the objects in between: notes/2026/first."}
          </p>
        </div>
      )}
      <ValueEditor
        initial=""
        currentId={undefined}
        action={isNamed ? "Add" : "Append"}
        isDisabled={isNamed && (name === "" || problem !== undefined)}
        onSave={(value) => onSave(isNamed ? `${path}/${name}` : undefined, value)}
        onClose={onClose}
      />
    </div>
  );
}

function CopyTo({ from, onCopy }: { from: string; onCopy: (to: string) => Promise<boolean> }) {
  const [to, setTo] = useState(from.startsWith("w/") ? `${from}-copy` : "w/");
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void onCopy(to.trim());
      }}
    >
      <div class="field">
        <label for="copy-to">Path of the copy</label>
        <input
          id="copy-to"
          type="text"
          autoComplete="off"
          spellcheck={false}
          value={to}
          onInput={(event) => setTo(event.currentTarget.value)}
        />
      </div>
      <div class="form-actions">
        <button type="submit" class="button primary" disabled={!isWritable(to.trim())}>
          Copy
        </button>
      </div>
    </form>
  );
}

