// Modal dialogs. The browser's own element keeps the focus inside and closes on Escape.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Dialog({
  title,
  onClose,
  children,
  kind = "normal",
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  kind?: "normal" | "drawer" | "palette";
}) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={`dialog ${kind}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === element.current) onClose();
      }}
    >
      <div class="dialog-body">
        {kind !== "palette" && (
          <header class="dialog-head">
            <h2>{title}</h2>
            <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
              <span aria-hidden="true">×</span>
            </button>
          </header>
        )}
        {children}
      </div>
    </dialog>
  );
}

export function Confirm({
  title,
  action,
  isDangerous = false,
  onConfirm,
  onClose,
  children,
}: {
  title: string;
  action: string;
  isDangerous?: boolean;
  onConfirm: () => void;
  onClose: () => void;
  children: ComponentChildren;
}) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div>{children}</div>
      <div class="dialog-actions">
        <button type="button" class="button" onClick={onClose}>
          Keep as it is
        </button>
        <button
          type="button"
          class={`button ${isDangerous ? "danger" : "primary"}`}
          onClick={() => {
            onClose();
            onConfirm();
          }}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}
