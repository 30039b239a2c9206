/** Short messages about what the person did, and the one way in which views send commands. */

import { signal } from "../../vendor/ui.js";
import { holdButton } from "./clicks.js";
import { noteOutage } from "./outage.js";
import { connection, lost } from "./session.js";

export const NOT_CONNECTED = "The connection is lost: nothing was sent. Try again when it is back.";
const UNANSWERED = "The connection was lost before the reply: it is unknown whether the action was carried out. The reply follows when the connection is back.";
const SHOWN_FOR = 6_000;
const MOST = 5;

/** @typedef {{ id: number, text: string, kind: "done" | "error" }} Toast */

/** @type {import("../../vendor/ui.js").Signal<Toast[]>} */
export const toasts = signal([]);

let number = 0;

/** @param {string} text @param {"done" | "error"} [kind] */
export function toast(text, kind = "done") {
  const id = ++number;
  toasts.value = [...toasts.value, { id, text, kind }].slice(-MOST);
  if (kind === "done") setTimeout(() => dismiss(id), SHOWN_FOR); // an error stays until it is dismissed
}

/** @param {string} text */
const toastError = (text) => toast(text, "error");

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
 * @param {(text: string) => void} [refused] shows an error, as a form does that the command belongs to
 * @returns {Promise<T | undefined>}
 */
export async function attempt(command, done = "", refused = toastError) {
  if (lost.peek()) {
    refused(NOT_CONNECTED);
    return undefined;
  }
  const free = holdButton();
  let waits = true;
  const stop = connection.subscribe(() => {
    if (!lost.peek()) return;
    // a command that cannot be repeated safely is rejected now, and says so itself
    setTimeout(() => {
      if (waits) refused(UNANSWERED);
      stop();
    });
  });
  const result = await report(command, done, refused);
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
 * @param {(text: string) => void} [refused]
 * @returns {Promise<T | undefined>}
 */
export async function report(command, done = "", refused = toastError) {
  try {
    const result = await command();
    const text = typeof done === "function" ? done(result) : done;
    if (text) toast(text);
    return result;
  } catch (error) {
    const { code, message } = /** @type {{ code?: string, message: string }} */ (error);
    noteOutage({ code, message });
    refused(code ? `${code}: ${message}` : message);
    return undefined;
  }
}
