/** Edits that would be lost: what changes the view asks first, and so does the browser before it closes the page. */

import { useEffect, useRef } from "../../vendor/ui.js";
import { confirmed } from "../parts/dialog.js";

/** @type {Set<() => boolean>} */
const checks = new Set();

export const isUnsaved = () => [...checks].some((check) => check());

/** While a view is shown, ask before its edits are lost. @param {() => boolean} check whether there are any now */
export function useUnsaved(check) {
  const latest = useRef(check);
  latest.current = check;
  useEffect(() => {
    const own = () => latest.current();
    checks.add(own);
    return () => void checks.delete(own);
  }, []);
}

/** Whether the person gives up the edits. */
export function mayLeave() {
  return confirmed({
    title: "Leave without saving?",
    body: "What you have edited on this page is not saved, and would be lost.",
    label: "Leave, and lose the edits",
    local: true,
  });
}

window.addEventListener("beforeunload", (event) => isUnsaved() && event.preventDefault());
