/** The keys of a list with an active row. While there is one, the rows stay in place. */

import { focusHeading, focusList } from "../state/focus.js";

/**
 * @typedef {object} Listed
 * @property {number} count
 * @property {(index: number) => string} at
 * @property {(key: string) => number} indexOf the row of a key, or -1
 * @property {(key: string) => number} below the first row below a key, also of one that the list has no more
 */

/** Let a list follow again. @param {() => void} forget removes its active row */
export function leaveList(forget) {
  forget();
  focusHeading();
}

/**
 * `j`, `k`, `Enter` and `Escape` for a list, to be given to `useShortcuts`. `what` names one of its rows. `j` and `k` continue
 * from where the active row was if it has left the list.
 * @param {string} what
 * @param {Listed} list
 * @param {import("../../vendor/ui.js").Signal<string>} active the key of the active row
 * @param {(key: string) => void} open
 */
export function listKeys(what, list, active, open) {
  /** @param {1 | -1} by */
  const move = (by) => {
    focusList();
    const row = list.indexOf(active.value);
    const below = active.value === "" ? 0 : list.below(active.value);
    const index = by > 0 ? below : (row >= 0 ? row : below) - 1;
    if (list.count > 0) active.value = list.at(Math.max(0, Math.min(list.count - 1, index)));
  };
  return [
    { key: "j", what: `Next ${what}`, run: () => move(1) },
    { key: "k", what: `Previous ${what}`, run: () => move(-1) },
    { key: "Enter", what: `Open the ${what}`, run: () => list.indexOf(active.value) >= 0 && open(active.value) },
    { key: "Escape", what: "Leave the list, which then follows", run: () => leaveList(() => (active.value = "")) },
  ];
}
