/** Keyboard shortcuts. Keys in a text field are text; `Escape` leaves it. */

import { signal, useLayoutEffect } from "../../vendor/ui.js";

/** @typedef {{ key: string, what: string, run: () => void }} Shortcut */

/** @type {import("../../vendor/ui.js").Signal<Shortcut[]>} */
export const shortcuts = signal([]);

/**
 * Shortcuts for as long as the component is in the page. They work as soon as it is seen, so no early key is lost.
 * @param {() => Shortcut[]} make
 * @param {readonly unknown[]} inputs they are made again when one of these changes
 */
export function useShortcuts(make, inputs) {
  useLayoutEffect(() => {
    const added = make();
    shortcuts.value = [...shortcuts.peek(), ...added];
    return () => void (shortcuts.value = shortcuts.peek().filter((one) => !added.includes(one)));
  }, inputs);
}

/** @param {EventTarget | null} target */
const isText = (target) =>
  target instanceof Element && target.matches("input:not([type=checkbox]), textarea, select, [contenteditable=true]");

/** Listen to the keyboard. */
export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const [target = null] = event.composedPath(); // in an editor, the event's own target is only its shadow host
    if (isText(target)) {
      if (event.key === "Escape") /** @type {HTMLElement} */ (target).blur();
      return;
    }
    const onControl = event.target instanceof Element && event.target.closest("a, button, summary, [type=checkbox]");
    if (onControl && (event.key === "Enter" || event.key === " ")) return;
    const found = shortcuts.value.findLast(({ key }) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found.run();
  });
}
