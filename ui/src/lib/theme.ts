// Light and dark theme. Only this choice is kept in local storage; nothing about jobs ever is.

import { Store } from "./store";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "catena.theme";

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return THEMES.find((theme) => theme === found) ?? "system";
  } catch {
    return "system";
  }
}

export const theme = new Store<Theme>("system");

export function startTheme(): void {
  theme.subscribe((choice) => {
    if (choice === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = choice;
  });
  theme.set(stored());
}

export function chooseTheme(choice: Theme): void {
  theme.set(choice);
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // Storage is unavailable; the choice lasts until the page is closed.
  }
}
