/**
 * Lets runs that retention has deleted leave a list. No event tells of them, so what a list has from the store is read
 * again some time after events, which retention follows, and when the person returns to the tab.
 */

import { useEffect } from "../../../vendor/ui.js";
import { noteOutage } from "../../state/outage.js";
import { live } from "../../state/session.js";

const REST = 30_000; // from an event to the reading, and between two readings
const MOST_PAGES = 20; // that are read again

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {{ runs: RunRecord[], over: boolean, reached?: string }} Page `over`: the store has no more; `reached`: how far it looked */

/** Call `check` when runs can have been deleted. @param {() => void} check @param {unknown} of what is checked */
export function useRetention(check, of) {
  useEffect(() => {
    let timer = 0;
    let again = false; // whether events came after the one that the timer is for
    const later = () => {
      again = timer !== 0;
      timer ||= window.setTimeout(() => {
        timer = 0;
        if (!document.hidden) check();
        if (again) later();
      }, REST);
    };
    const shown = () => void (document.hidden || check());
    const ignore = live.onFrame(later);
    document.addEventListener("visibilitychange", shown);
    return () => {
      clearTimeout(timer);
      ignore();
      document.removeEventListener("visibilitychange", shown);
    };
  }, [of]);
}

/**
 * Read again, page by page, what a list has from the store.
 * @param {import("./rows.js").Rows} rows
 * @param {(before: string | undefined) => Promise<Page>} read the page before an id
 * @param {() => boolean} isOther whether the state is another one than at the call
 */
export async function removeDeleted(rows, read, isOther) {
  /** @type {string | undefined} */
  let before;
  try {
    for (let page = 0; page < MOST_PAGES; page++) {
      const end = rows.oldestOwn;
      if (end === undefined || (before !== undefined && before <= end)) return;
      const found = await read(before);
      if (isOther()) return;
      const last = found.over ? undefined : (found.reached ?? found.runs.at(-1)?.id);
      rows.removeDeleted(found.runs, before, last, live.runs);
      if (last === undefined) return;
      before = last;
    }
  } catch (error) {
    noteOutage(/** @type {Error} */ (error)); // the next time, it is tried again
  }
}
