// Text that others wrote. Characters that cannot be seen are shown by their code point.

import { segments } from "../lib/visible";

/** Longest text that is shown at once; more would slow the page down. */
const SHOWN_MAX = 2000;

/** A text of unknown origin, isolated from the direction of the text around it. */
export function Text({ text, most = SHOWN_MAX }: { text: string; most?: number }) {
  const isCut = text.length > most;
  const parts = segments(isCut ? text.slice(0, most) : text);
  const [only] = parts;
  const isPlain = parts.length <= 1 && !only?.isHidden;
  return (
    <bdi>
      {isPlain
        ? (only?.text ?? "")
        : parts.map(({ text, isHidden }) =>
            isHidden ? (
              <span class="hidden-char" title="A character that cannot be seen">
                {text}
              </span>
            ) : (
              text
            ),
          )}
      {isCut && <span class="muted">… ({text.length.toLocaleString("en")} characters)</span>}
    </bdi>
  );
}

/** A description: what is between backticks is code. Nothing else of Markdown is read. */
export function Description({ text, most = SHOWN_MAX }: { text: string; most?: number }) {
  const parts = text.length > most ? [text] : text.split(/`([^`\n]+)`/);
  return (
    <>
      {parts.map((part, at) =>
        at % 2 === 0 ? (
          part !== "" && <Text key={at} text={part} most={most} />
        ) : (
          <code key={at}>
            <Text text={part} />
          </code>
        ),
      )}
    </>
  );
}
