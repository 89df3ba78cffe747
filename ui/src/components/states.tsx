// What a page shows when there is nothing to show yet, nothing at all, or something went wrong.

import type { ComponentChildren } from "preact";
import { ApiError, messageOf, OfflineError } from "../api/client";
import { requestSignIn } from "../api/session";
import type { Loaded } from "../lib/load";
import { Icon } from "./icons";
import { Text } from "./text";

export function Loading({ what }: { what: string }) {
  return (
    <p class="state muted" role="status">
      <span class="spinner" aria-hidden="true" /> Loading {what}…
    </p>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state empty">
      <p class="state-title">{title}</p>
      {children}
    </div>
  );
}

export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const hint = error instanceof ApiError ? error.hint : undefined;
  const isUnauthenticated = error instanceof ApiError && error.status === 401;
  const title =
    error instanceof OfflineError
      ? "The venue cannot be reached"
      : error instanceof ApiError && error.status === 404
        ? "Not found"
        : isUnauthenticated
          ? "Sign in to see this"
          : error instanceof ApiError && error.status === 403
          ? "Not allowed"
          : "This did not work";
  return (
    <div class="state problem" role="alert">
      <p class="state-title">
        <Icon name="warn" /> {title}
      </p>
      <p>
        <Text text={messageOf(error)} />
      </p>
      {hint && (
        <p class="muted">
          <Text text={hint} />
        </p>
      )}
      {error instanceof OfflineError && (
        <p class="muted">This page loads again as soon as the venue is back.</p>
      )}
      {retry && isUnauthenticated && (
        <button
          type="button"
          class="button primary"
          onClick={() => void requestSignIn("This needs a token.").then(retry)}
        >
          <Icon name="key" /> Sign in
        </button>
      )}
      {retry && !isUnauthenticated && (
        <button type="button" class="button" onClick={retry}>
          <Icon name="again" /> Try again
        </button>
      )}
    </div>
  );
}

/** Why an action or a field failed. Nothing if it did not. */
export function FieldProblem({ text }: { text: string | undefined }) {
  return text === undefined ? null : (
    <p class="field-problem" role="alert">
      <Text text={text} />
    </p>
  );
}

/** Shows what was loaded, or why it is not there. */
export function Result<T>({
  loaded,
  what,
  children,
}: {
  loaded: Loaded<T>;
  what: string;
  children: (value: T) => ComponentChildren;
}) {
  const { value, error, isLoading, reload } = loaded;
  if (value !== undefined) return <>{children(value)}</>;
  if (error !== undefined) return <Problem error={error} retry={reload} />;
  return isLoading ? <Loading what={what} /> : null;
}
