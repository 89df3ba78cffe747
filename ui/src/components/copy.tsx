// Copying to the clipboard, and identifiers that can be copied.

import { useEffect, useState } from "preact/hooks";
import { visible } from "../lib/visible";
import { Icon } from "./icons";
import { Text } from "./text";

export function CopyButton({
  text,
  label,
  name,
}: {
  text: string | (() => string | Promise<string>);
  /** What is copied, for people who cannot see the button's surroundings. */
  label: string;
  /** Text on the button. Without it, the button shows only an icon. */
  name?: string;
}) {
  const [state, setState] = useState<"idle" | "copied" | "failed">("idle");
  useEffect(() => {
    if (state === "idle") return;
    const timer = setTimeout(() => setState("idle"), 1500);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
      setState("copied");
    } catch {
      setState("failed");
    }
  };
  const said = state === "copied" ? "Copied" : state === "failed" ? "Could not copy" : label;
  return (
    <button
      type="button"
      class={name ? "button small" : "icon-button"}
      title={said}
      aria-label={name && state === "idle" ? `${name}: ${said}` : said}
      onClick={() => void copy()}
    >
      <Icon name={state === "copied" ? "check" : state === "failed" ? "cross" : "copy"} />
      {name && <span>{state === "idle" ? name : said}</span>}
    </button>
  );
}

/** The beginning and end of a long identifier. Two that differ anywhere else also differ in a hash. */
export function shorten(id: string, start = 10, end = 4): string {
  return id.length <= start + end + 1 ? id : `${id.slice(0, start)}…${id.slice(-end)}`;
}

/** The name of an operation for people: an asset ID is shortened, anything else stays. */
export function operationName(op: string): string {
  return /^(0x)?[0-9a-f]{64}$/.test(op) ? shorten(op, 10, 4) : op;
}

/** An identifier in short form, complete on hover, with a button that copies it. */
export function Id({
  id,
  href,
  label,
  isFull = false,
}: {
  id: string;
  href?: string | undefined;
  label: string;
  isFull?: boolean;
}) {
  const shown = <Text text={isFull ? id : shorten(id)} />;
  return (
    <span class="id">
      {href === undefined ? (
        <code title={visible(id)}>{shown}</code>
      ) : (
        <a href={href} title={visible(id)}>
          <code>{shown}</code>
        </a>
      )}
      <CopyButton text={id} label={`Copy ${label}`} />
    </span>
  );
}
