/** A JSON value as YAML, as a person would write it. Pure. */

import { ExactNumber, writeExact } from "../../../greenroom.js";

const PLAIN = /^[A-Za-z_$][\w$./-]*( [\w$./-]+)*$/;
const CONSTANT = /^(true|false|null|yes|no|on|off|y|n)$/i;
/** What is invisible, changes the direction of text, or is not allowed in YAML. */
const ODD = /[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]/g;

/** @param {any} value */
export const toYaml = (value) => (isEmpty(value) ? `${scalar(value)}\n` : `${block(value, "").join("\n")}\n`);

/** The lines of an object or a list. @param {any} value @param {string} indent @returns {string[]} */
function block(value, indent) {
  if (isEmpty(value)) return [indent + scalar(value)];
  if (!Array.isArray(value)) return Object.entries(value).flatMap(([key, one]) => field(`${indent}${text(key)}:`, one, `${indent}  `));
  return value.flatMap((one) => {
    const [first, ...others] = block(one, `${indent}  `);
    return [`${indent}- ${first.slice(indent.length + 2)}`, ...others];
  });
}

/** @param {string} head @param {any} value @param {string} indent */
function field(head, value, indent) {
  return isEmpty(value) ? [`${head} ${scalar(value)}`] : [head, ...block(value, indent)];
}

/** Whether the value is written on one line. @param {any} value */
const isEmpty = (value) => typeof value !== "object" || value === null || value instanceof ExactNumber || Object.keys(value).length === 0;

/** @param {any} value */
const scalar = (value) => (typeof value === "string" ? text(value) : writeExact(value));

/** @param {string} value */
function text(value) {
  if (PLAIN.test(value) && !CONSTANT.test(value)) return value;
  return JSON.stringify(value).replace(ODD, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
