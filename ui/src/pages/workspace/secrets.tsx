// Secrets: their names. A value can be set and replaced, and is never shown again.

import { useState } from "preact/hooks";
import { messageOf } from "../../api/client";
import { deleteSecret, listSecrets, setSecret } from "../../api/values";
import { Confirm } from "../../components/dialog";
import { Icon } from "../../components/icons";
import { FieldProblem, Result } from "../../components/states";
import { Text } from "../../components/text";
import { useLoad } from "../../lib/load";

export function Secrets() {
  const secrets = useLoad(listSecrets, []);
  const [asked, setAsked] = useState<string | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const remove = async (name: string): Promise<void> => {
    setProblem(undefined);
    try {
      await deleteSecret(name);
      secrets.reload();
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <section class="card" id="secrets" aria-label="Secrets">
      <h2>Secrets</h2>
      <p class="muted">Operations use them by name. Their values are stored encrypted and never shown.</p>
      <Result loaded={secrets} what="the names of the secrets">
        {(names) =>
          names.length === 0 ? (
            <p class="muted">There are none yet.</p>
          ) : (
            <ul class="name-list">
              {names.map((name) => (
                <li key={name} class="row spread">
                  <code>
                    <Text text={name} most={100} />
                  </code>
                  <button
                    type="button"
                    class="button small"
                    aria-label={`Delete the secret ${name}`}
                    onClick={() => setAsked(name)}
                  >
                    <Icon name="trash" /> Delete
                  </button>
                </li>
              ))}
            </ul>
          )
        }
      </Result>
      <FieldProblem text={problem} />
      <SetSecret onSet={secrets.reload} />
      {asked !== undefined && (
        <Confirm
          title="Delete this secret?"
          action="Delete it"
          isDangerous
          onConfirm={() => void remove(asked)}
          onClose={() => setAsked(undefined)}
        >
          <p>
            Jobs that use <code>{<Text text={asked} most={100} />}</code> fail from now on.
          </p>
        </Confirm>
      )}
    </section>
  );
}

function SetSecret({ onSet }: { onSet: () => void }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const [said, setSaid] = useState<{ text: string; isBad: boolean } | undefined>(undefined);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await setSecret(name.trim(), value);
      setSaid({ text: `${name.trim()} was stored.`, isBad: false });
      setName("");
      onSet();
    } catch (error) {
      setSaid({ text: messageOf(error), isBad: true });
    } finally {
      setValue("");
    }
  };
  return (
    <form class="form" onSubmit={(event) => void submit(event)}>
      <div class="field">
        <label for="secret-name">Name</label>
        <input
          id="secret-name"
          type="text"
          autoComplete="off"
          spellcheck={false}
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </div>
      <div class="field">
        <label for="secret-value">Value</label>
        <input
          id="secret-value"
          type="password"
          autoComplete="new-password"
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
      </div>
      <div class="form-actions">
        <button type="submit" class="button" disabled={name.trim() === "" || value === ""}>
          <Icon name="key" /> Store
        </button>
        {said && (
          <p class={said.isBad ? "field-problem" : "muted"} role={said.isBad ? "alert" : "status"}>
            <Text text={said.text} />
          </p>
        )}
      </div>
    </form>
  );
}
