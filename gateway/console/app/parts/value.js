/** What people type into fields that take JSON or text. Pure. */

import { ExactNumber, parseExact } from "../../greenroom.js";

/**
 * The value of a field: `kind` is what it is sent as. What begins like JSON must be JSON.
 * @param {string} text
 * @returns {{ value: unknown, kind: string, problem: string }}
 */
export function valueOf(text) {
  try {
    const value = parseExact(text);
    return { value, kind: `JSON: ${nameOf(value)}`, problem: "" };
  } catch (error) {
    const problem = /^\s*[[{"]/.test(text) ? `not valid JSON: ${/** @type {Error} */ (error).message}` : "";
    return { value: text, kind: "text", problem };
  }
}

/** @param {unknown} value */
function nameOf(value) {
  if (value === null) return "null";
  if (value instanceof ExactNumber) return "number";
  return Array.isArray(value) ? "list" : typeof value;
}
