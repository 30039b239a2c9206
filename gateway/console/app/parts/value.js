/** What people type into fields: JSON, or text where the field takes both. Pure. */

const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/g;
const STRING = /"(?:[^"\\]|\\.)*"/g;

/**
 * The value of a JSON text. Throws an error for people, also for an integer that JavaScript would round.
 * @param {string} text
 */
export function parsed(text) {
  const value = JSON.parse(text);
  const rounded = (text.replace(STRING, "").match(NUMBER) ?? []).find((one) => /^-?\d+$/.test(one) && !Number.isSafeInteger(Number(one)));
  if (rounded) throw new Error(`${rounded} is too large for a browser, which would round it: send it in quotes, as text`);
  return value;
}

/**
 * The value of a field that takes JSON or text: `kind` is what it is sent as. What begins like JSON must be JSON.
 * @param {string} text
 * @returns {{ value: unknown, kind: string, problem: string }}
 */
export function valueOf(text) {
  try {
    const value = parsed(text);
    return { value, kind: `JSON: ${nameOf(value)}`, problem: "" };
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    if (!(error instanceof SyntaxError)) return { value: text, kind: "text", problem: message };
    return { value: text, kind: "text", problem: /^\s*[[{"]/.test(text) ? `not valid JSON: ${message}` : "" };
  }
}

/** @param {unknown} value */
const nameOf = (value) => (value === null ? "null" : Array.isArray(value) ? "list" : typeof value);
