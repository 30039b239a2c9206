/** Dark or light: as the system, unless the person chose one of them. */

import { effect, signal } from "../../vendor/ui.js";

const KEY = "greenroom.theme";
export const THEMES = ["system", "light", "dark"];

export const theme = signal(localStorage.getItem(KEY) ?? "system");

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  localStorage.setItem(KEY, theme.value);
});

/** Choose the next theme. */
export function changeTheme() {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
}
