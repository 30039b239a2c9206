/** Short messages about what the person did, and the one way in which views send commands. */

import { signal } from "../../vendor/ui.js";
import { noteOutage } from "./outage.js";

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

/** @param {number} id */
export function dismiss(id) {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

/**
 * Send a command. An error is shown, and gives undefined.
 * @template T
 * @param {() => Promise<T>} command
 * @param {string | ((result: T) => string)} [done] what to say once it is carried out
 * @returns {Promise<T | undefined>}
 */
export async function attempt(command, done = "") {
  try {
    const result = await command();
    const text = typeof done === "function" ? done(result) : done;
    if (text) toast(text);
    return result;
  } catch (error) {
    const refused = /** @type {{ code?: string, message: string }} */ (error);
    const { code, message } = refused;
    noteOutage(refused);
    toast(code ? `${code}: ${message}` : message, "error");
    return undefined;
  }
}
