/** Short messages about what the person did, and the one way in which views send commands. */

import { signal } from "../../vendor/ui.js";
import { OutcomeUnknown } from "../../greenroom.js";
import { holdButton, nameOfClicked } from "./clicks.js";
import { noteOutage } from "./outage.js";
import { connection, lost } from "./session.js";

export const NOT_CONNECTED = "The connection is lost: nothing was sent. Try again when it is back.";
const UNANSWERED = "The connection was lost before the reply: it is unknown whether the action was carried out. The reply follows when the connection is back.";
const SHOWN_FOR = 6_000;
const SEEN_AFTER = 2_000; // until then, an error outlasts a change of the view
const MOST = 5;

/**
 * @typedef {object} Toast
 * @property {number} id
 * @property {string} text
 * @property {"done" | "error"} kind
 * @property {string} action the button that was clicked, as it names itself; empty if there was none
 * @property {number} at when it appeared, as `performance.now()`
 * @property {boolean} stays whether only the person dismisses it: the effect of the action is unknown
 */

/** @type {import("../../vendor/ui.js").Signal<Toast[]>} */
export const toasts = signal([]);

let number = 0;

/** @param {string} text @param {"done" | "error"} [kind] @param {{ action?: string, stays?: boolean }} [about] */
export function toast(text, kind = "done", { action = "", stays = false } = {}) {
  const id = ++number;
  toasts.value = [...toasts.value, { id, text, kind, action, at: performance.now(), stays }].slice(-MOST);
  if (kind === "done") setTimeout(() => dismiss(id), SHOWN_FOR);
}

/**
 * Remove errors that are over: those of an action that has succeeded now, or, without an action, all that a person can
 * have seen.
 * @param {string} [action]
 */
export function forgetErrors(action) {
  const seen = performance.now() - SEEN_AFTER;
  const isOver = (/** @type {Toast} */ one) => (action === undefined ? one.at < seen : one.action === action);
  toasts.value = toasts.value.filter((one) => one.kind === "done" || one.stays || !isOver(one));
}

/** What an error says to a person, who does not know the names of commands. @param {unknown} error */
export function told(error) {
  const { code, message, details } = /** @type {{ code?: string, message: string, details?: any }} */ (error);
  if (error instanceof OutcomeUnknown) return message.replace(`the reply to ${details?.command}`, "the reply");
  return (code ? `${code}: ${message}` : message).replace(/; \w+ was not carried out$/, "; nothing was carried out");
}

/** @param {number} id */
export function dismiss(id) {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

/**
 * Send a command. Without a connection it is refused at once, because nobody expects it to be carried out later. An error
 * is shown, and gives undefined.
 * @template T
 * @param {() => Promise<T>} command
 * @param {string | ((result: T) => string)} [done] what to say once it is carried out
 * @param {(problem: string) => void} [refused] is given the error, too, to show it beside a form
 * @returns {Promise<T | undefined>}
 */
export async function attempt(command, done = "", refused = () => {}) {
  const action = nameOfClicked();
  if (lost.peek()) {
    refused(NOT_CONNECTED);
    toast(NOT_CONNECTED, "error", { action });
    return undefined;
  }
  const free = holdButton();
  let waits = true;
  const stop = connection.subscribe(() => {
    if (!lost.peek()) return;
    // a command that cannot be repeated safely is rejected now, and says so itself
    setTimeout(() => {
      if (waits) toast(UNANSWERED, "error", { action, stays: true });
      stop();
    });
  });
  const result = await report(command, done, action, refused);
  waits = false;
  stop();
  free();
  return result;
}

/**
 * Wait for what sends no command, such as reading a page of runs. An error is shown, and gives undefined.
 * @template T
 * @param {() => Promise<T>} command
 * @param {string | ((result: T) => string)} [done] what to say once it is carried out
 * @param {string} [action] the button that was clicked, which an error names
 * @param {(problem: string) => void} [refused] is given the error, too
 * @returns {Promise<T | undefined>}
 */
export async function report(command, done = "", action = "", refused = () => {}) {
  try {
    const result = await command();
    const text = typeof done === "function" ? done(result) : done;
    if (action) forgetErrors(action);
    if (text) toast(text, "done", { action });
    return result;
  } catch (error) {
    noteOutage(/** @type {{ code?: string, message: string }} */ (error));
    refused(told(error));
    toast(action ? `${action}: ${told(error)}` : told(error), "error", { action, stays: error instanceof OutcomeUnknown });
    return undefined;
  }
}
