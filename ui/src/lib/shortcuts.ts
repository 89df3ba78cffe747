// Keyboard shortcuts. They do nothing while the person types, and nothing with a modifier.

const handlers = new Map<string, () => void>();

/** Calls the handler when the key is pressed, until the returned function is called. */
export function onShortcut(key: string, handler: () => void): () => void {
  handlers.set(key, handler);
  return () => {
    if (handlers.get(key) === handler) handlers.delete(key);
  };
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
  );
}

/** The time within which the second key of a sequence such as `g h` must follow. */
const SEQUENCE_MS = 1000;
let prefix: { key: string; at: number } | undefined;

export function startShortcuts(openPalette: () => void): void {
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return openPalette();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const isSequence = prefix !== undefined && event.timeStamp - prefix.at < SEQUENCE_MS;
    const name = isSequence ? `${prefix!.key} ${event.key}` : event.key;
    prefix = undefined;
    const handler = handlers.get(name);
    if (handler) {
      event.preventDefault();
      handler();
    } else if (event.key === "g") prefix = { key: "g", at: event.timeStamp };
  });
}
