// Icons: 16 × 16, drawn with the colour of the text around them. They are decoration; the word next to
// them carries the meaning.

const PATHS = {
  home: "M2.5 7.5 8 3l5.5 4.5M4 6.5V13h8V6.5",
  jobs: "M3 4h10M3 8h10M3 12h6",
  operations: "M5.5 4 2.5 8l3 4M10.5 4l3 4-3 4M9 3 7 13",
  assets: "M3 3h6l4 4v6H3zM9 3v4h4",
  schedules: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11zM8 5v3.2l2.2 1.5",
  settings: "M3 5h6M12 5h1M3 11h1M7 11h6M9 3.4v3.2h3V3.4zM4 9.4v3.2h3V9.4z",
  workspace: "M2.5 4.5h4l1.5 2h5.5v6.5h-11zM2.5 6.5h11",
  executions: "M2.5 3.5h11v9h-11zM5 6.5l2 1.5-2 1.5M8.5 10h2.5",
  agents: "M4 6h8v6H4zM8 6V3.5M6.3 8.8v.4M9.7 8.8v.4M2.5 8.5v2M13.5 8.5v2",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  edit: "M3 13l.6-2.8L10.8 3l2.2 2.2-7.2 7.2z",
  search: "M7 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM10 10l3.2 3.2",
  copy: "M6 6h7v7H6zM3 10V3h7",
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  warn: "M8 2.5 14 13H2zM8 6.5v3M8 11v.6",
  play: "M5 3.5v9l7.5-4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  stop: "M4 4h8v8H4z",
  again: "M12.5 5.5A5 5 0 1 0 13 9M13 2.5v3.2H9.8",
  trash: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5",
  message: "M2.5 3.5h11v7H7l-3 2.5v-2.5H2.5z",
  key: "M5.5 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8.5 8H14M12 8v2.5",
  clock: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11zM8 5v3.2l2.2 1.5",
  skip: "M3 3.5 8 8l-5 4.5zM9 3.5 14 8l-5 4.5z",
  chain: "M6.5 9.5 9.5 6.5M7 4.5l1.5-1.5a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5 7.5 13A3 3 0 0 1 3 8.5L4.5 7",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  open: "M9 3h4v4M13 3 7.5 8.5M11 9v4H3V5h4",
  plus: "M8 3v10M3 8h10",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
