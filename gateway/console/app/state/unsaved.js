/**
 * Edits that would be lost: what changes the view asks first, and so does the browser before it closes the page. If the
 * token of the person is revoked meanwhile, the edits are kept until the next login, and are only for the same person.
 */

import { signal, useEffect, useRef } from "../../vendor/ui.js";
import { confirmed } from "../parts/dialog.js";
import { caller, may, phase } from "./session.js";
import { toast } from "./toasts.js";

/** @typedef {{ by: string, href: string, edits: any }} Kept `by`: the name of the token; `edits`: null if they are lost */

/** @type {Set<() => any>} */
const checks = new Set();

/** The edits of a person who has to log in again. @type {import("../../vendor/ui.js").Signal<Kept | null>} */
export const kept = signal(null);

export const isUnsaved = () => [...checks].some((check) => check());

/**
 * While a view is shown, ask before its edits are lost. The view begins with `takeKept`.
 * @param {() => any} check the edits as an object, if there are any now; `true` for edits that cannot be kept
 */
export function useUnsaved(check) {
  const latest = useRef(check);
  latest.current = check;
  useEffect(() => {
    const own = () => latest.current();
    checks.add(own);
    return () => {
      const edits = own();
      if (checks.delete(own) && edits && phase.peek() === "login") kept.value = { by: caller.peek(), href: location.href, edits: edits === true ? null : edits };
    };
  }, []);
}

/** Whether the person can save the edits. @param {Kept} found */
const isForCaller = ({ by, edits }) => edits && by === caller.peek() && may("operator");

/** The edits of this person in this view before a login; null without any. */
export function takeKept() {
  const found = kept.peek();
  if (found === null || !isForCaller(found) || found.href !== location.href) return null;
  kept.value = null;
  return found.edits;
}

/** After a login: edits of someone else, or of a person who may not save them any more, are lost. */
export function dropKept() {
  const found = kept.peek();
  if (found === null || isForCaller(found)) return;
  kept.value = null;
  toast(`What ${found.by || "someone"} had edited before this login was not saved, and is lost.`, "error");
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

/** Whether the person may log out or load the page again: if edits would be lost, only when they are given up. */
export async function mayLoseEdits() {
  if (isUnsaved() && !(await mayLeave())) return false;
  checks.clear();
  return true;
}

window.addEventListener("beforeunload", (event) => (isUnsaved() || (kept.peek()?.edits && phase.peek() === "login")) && event.preventDefault());
