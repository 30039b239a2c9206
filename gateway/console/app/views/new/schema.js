/** The fields of a form for parameters that a JSON Schema describes. Pure. */

import { ExactNumber, writeExact } from "../../../greenroom.js";
import { valueOf } from "../../parts/value.js";

/** @typedef {"text" | "whole number" | "number" | "choice" | "list" | "object" | "any"} Kind */
/** @typedef {ReturnType<typeof valueOf>} Read */

/**
 * @typedef {object} SchemaField
 * @property {string} name
 * @property {Kind} kind
 * @property {boolean} required
 * @property {unknown} [usual] the value if it is omitted
 * @property {unknown[]} choices of the kind `choice`
 * @property {string} about
 */

const MOST_REFERENCES = 20; // in succession; a schema of another process can refer to itself
const KINDS = /** @type {Record<string, Kind>} */ ({
  string: "text",
  integer: "whole number",
  number: "number",
  array: "list",
  object: "object",
});

/** What a field expects, in words. */
export const EXPECTED = {
  text: "text",
  "whole number": "a whole number",
  number: "a number",
  list: "a JSON list",
  object: "a JSON object",
  choice: "a choice",
  any: "text, or JSON",
};

/** The fields of an object; null if the schema does not name them all. @param {unknown} schema @returns {SchemaField[] | null} */
export function fieldsOf(schema) {
  const definitions = objectOr(objectOr(schema).$defs);
  const whole = resolved(schema, definitions);
  if (!isObject(whole.properties)) return null;
  const required = Array.isArray(whole.required) ? whole.required : [];
  return Object.entries(whole.properties).map(([name, property]) => {
    const part = aimOf(property, definitions);
    const choices = part.type === "boolean" ? [true, false] : Array.isArray(part.enum) ? part.enum : [];
    const kind = choices.length > 0 ? "choice" : Object.hasOwn(KINDS, String(part.type)) ? KINDS[part.type] : "any";
    return {
      name,
      kind,
      required: required.includes(name),
      ...(Object.hasOwn(objectOr(property), "default") && { usual: objectOr(property).default }),
      choices,
      about: String(objectOr(property).description ?? part.description ?? ""),
    };
  });
}

/** The fields in one line: `url, pages?`. @param {unknown} schema */
export function inBrief(schema) {
  const fields = fieldsOf(schema);
  if (fields === null) return "any parameters";
  return fields.map(({ name, required }) => (required ? name : `${name}?`)).join(", ") || "no parameters";
}

/** The value of what is typed into a field. @param {SchemaField} field @param {string} text @returns {Read} */
export function readField({ kind }, text) {
  if (kind === "text") return { value: text, kind: "text", problem: "" };
  const read = valueOf(text);
  const { value } = read;
  const fits = {
    "whole number": isNumber(value) && /^\s*-?\d+\s*$/.test(text),
    number: isNumber(value),
    list: Array.isArray(value),
    object: isObject(value),
    choice: true,
    any: true,
  }[kind];
  return fits ? read : { ...read, problem: read.problem || `must be ${EXPECTED[kind]}` };
}

/**
 * What stands in the fields for these parameters, by name; null if the fields cannot show them exactly.
 * @param {SchemaField[]} fields
 * @param {unknown} params
 * @returns {Record<string, string> | null}
 */
export function textsOf(fields, params) {
  if (!isObject(params)) return null;
  const texts = Object.entries(params).map(([name, value]) => {
    const field = fields.find((one) => one.name === name);
    return [name, field ? textOf(field, value) : null];
  });
  return texts.some(([, text]) => text === null) ? null : Object.fromEntries(texts);
}

/** @param {SchemaField} field @param {unknown} value */
function textOf(field, value) {
  const bare = typeof value === "string" && (field.kind === "text" || (field.kind === "any" && valueOf(value).value === value));
  const text = bare ? value : writeExact(value);
  if (text === "" || /[\r\n]/.test(text)) return null; // an empty field is omitted, and a field has one line
  if (field.kind === "choice" && !field.choices.some((one) => writeExact(one) === text)) return null;
  const read = readField(field, text);
  return read.problem === "" && writeExact(read.value) === writeExact(value) ? text : null;
}

/**
 * What a property means: that of its reference, and without null, which is what it is if it is omitted or written as JSON.
 * @param {unknown} property
 * @param {Record<string, any>} definitions
 */
function aimOf(property, definitions) {
  const part = resolved(property, definitions);
  if (!Array.isArray(part.anyOf)) return part;
  const members = part.anyOf.map((one) => resolved(one, definitions)).filter(({ type }) => type !== "null");
  return members.length === 1 ? members[0] : {};
}

/** @param {unknown} part @param {Record<string, any>} definitions @returns {Record<string, any>} */
function resolved(part, definitions) {
  let found = objectOr(part);
  for (let count = 0; count < MOST_REFERENCES && typeof found.$ref === "string"; count++) {
    const name = found.$ref.slice(found.$ref.lastIndexOf("/") + 1);
    found = objectOr(Object.hasOwn(definitions, name) ? definitions[name] : {});
  }
  return found;
}

/** @param {unknown} value @returns {value is Record<string, any>} */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);

/** @param {unknown} value @returns {Record<string, any>} */
const objectOr = (value) => (isObject(value) ? value : {});

/** @param {unknown} value */
const isNumber = (value) => typeof value === "number" || value instanceof ExactNumber;
