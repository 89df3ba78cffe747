// The keyboard shortcuts.

import { Dialog } from "./dialog";

export const SHORTCUTS: readonly (readonly [keys: string, effect: string])[] = [
  ["Ctrl K or ⌘ K", "open the command palette"],
  ["/", "go to the search or filter of the page"],
  ["j, k", "select the next or previous row"],
  ["Enter", "open the selected row"],
  ["g then h, j, o, s, w", "go to home, jobs, operations, schedules, workspace"],
  ["v", "verify the job on the page"],
  ["?", "show this list"],
  ["Esc", "close a dialog"],
];

export function ShortcutList() {
  return (
    <table class="facts-table">
      <tbody>
        {SHORTCUTS.map(([keys, effect]) => (
          <tr key={keys}>
            <th scope="row">
              <kbd>{keys}</kbd>
            </th>
            <td>{effect}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <ShortcutList />
    </Dialog>
  );
}
