// Characters that change how text looks without being seen: they are shown by their code point, so
// that an ID or a name cannot pretend to be another one.

export interface Segment {
  readonly text: string;
  /** Whether the text stands for a character that would be invisible. */
  readonly isHidden: boolean;
}

// C0 and C1 controls except tab and newline, soft hyphen, combining grapheme joiner, Arabic letter
// mark, Hangul fillers, zero-width characters, directional marks, embeddings and isolates, line and
// paragraph separators, variation selectors, the byte-order mark, interlinear annotations, tags.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|\ud834[\udd73-\udd7a]|\udb40[\udc00-\uddef]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Splits a text into what can be seen and what cannot. */
export function segments(text: string): Segment[] {
  const found: Segment[] = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > end) found.push({ text: text.slice(end, match.index), isHidden: false });
    const point = match[0].codePointAt(0) ?? 0;
    const code = point.toString(16).toUpperCase().padStart(4, "0");
    found.push({ text: `U+${code}`, isHidden: true });
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ text: text.slice(end), isHidden: false });
  return found;
}

/** The same as one plain text, for attributes such as titles. */
export function visible(text: string): string {
  return segments(text)
    .map((segment) => (segment.isHidden ? `⟨${segment.text}⟩` : segment.text))
    .join("");
}
