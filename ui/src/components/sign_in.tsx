// Signing in with a token. The dialog lies over the page, so nothing that was typed is lost.

import { useState } from "preact/hooks";
import { dismissSignIn, signIn, useToken } from "../api/session";
import { useStore } from "../lib/store";
import { Dialog } from "./dialog";
import { Text } from "./text";

export function SignInDialog() {
  const request = useStore(signIn);
  const [text, setText] = useState("");
  const [isKept, setIsKept] = useState(false);
  if (!request) return null;
  const submit = (event: Event): void => {
    event.preventDefault();
    const given = text.trim().replace(/^Bearer\s+/i, "");
    if (given === "") return;
    setText("");
    useToken(given, isKept);
  };
  return (
    <Dialog title="Sign in" onClose={dismissSignIn}>
      <form onSubmit={submit} class="form">
        <p>
          <Text text={request.reason} />
        </p>
        <div class="field">
          <label for="sign-in-token">Token</label>
          <input
            id="sign-in-token"
            type="password"
            autoComplete="off"
            spellcheck={false}
            value={text}
            aria-describedby="sign-in-hint"
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <p class="hint" id="sign-in-hint">
            <code>catena token create</code> on the venue's host prints one.
          </p>
        </div>
        <label class="check">
          <input
            type="checkbox"
            checked={isKept}
            onChange={(event) => setIsKept(event.currentTarget.checked)}
          />
          Keep it until this tab is closed
        </label>
        <div class="dialog-actions">
          <button type="button" class="button" onClick={dismissSignIn}>
            Not now
          </button>
          <button type="submit" class="button primary">
            Sign in
          </button>
        </div>
      </form>
    </Dialog>
  );
}
