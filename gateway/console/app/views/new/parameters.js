/** The parameters of a new run: a field for each that the job names, or one JSON value. */

import { parseExact, writeExact } from "../../../greenroom.js";
import { html, useSignal } from "../../../vendor/ui.js";
import { InvisibleLetters, visible } from "../../parts/text.js";
import { ValueField } from "../../parts/valuefield.js";
import { EXPECTED, readField, textsOf } from "./schema.js";

/** @typedef {import("./schema.js").SchemaField} SchemaField */

/**
 * What the form begins with, and how a person wants to write: as fields, or as JSON.
 * @param {SchemaField[] | null} fields null if the job does not name its parameters
 * @param {unknown} params those of another run, if any
 */
export function useParameters(fields, params) {
  const texts = useSignal(fields && textsOf(fields, params ?? {}));
  const json = useSignal(params === undefined || params === null ? "" : writeExact(params, 2));
  const asJson = useSignal(texts.peek() === null);
  return { fields, texts, json, asJson };
}

/**
 * The parameters in the form; undefined for the draft of the handle. Raises an error that names what is wrong.
 * @param {ReturnType<typeof useParameters>} given
 * @param {FormData} form
 */
export function paramsIn({ fields, json, asJson }, form) {
  if (asJson.value || fields === null) return parsed(json.value);
  const typed = fields.map((field, index) => /** @type {const} */ ([field, String(form.get(`parameter ${index}`) ?? "")]));
  return Object.fromEntries(
    typed.filter(([, text]) => text !== "").map(([field, text]) => {
      const { value, problem } = readField(field, text);
      if (problem) throw new Error(`${field.name} ${problem}`);
      return [field.name, value];
    }),
  );
}

/** @param {string} text */
function parsed(text) {
  try {
    return text.trim() === "" ? undefined : parseExact(text);
  } catch (error) {
    throw new Error(`the parameters are not valid JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/** @param {{ given: ReturnType<typeof useParameters> }} props */
export function Parameters({ given }) {
  const { fields, texts, json, asJson } = given;
  const problem = useSignal("");
  /** Write the same parameters in the other way. @param {any} event */
  const change = ({ currentTarget: button }) => {
    problem.value = "";
    try {
      const params = paramsIn(given, new FormData(button.form));
      if (asJson.value) {
        texts.value = fields && textsOf(fields, params ?? {});
        if (texts.value === null) throw new Error("the fields cannot show these parameters");
      } else json.value = writeExact(params, 2);
      asJson.value = !asJson.value;
    } catch (error) {
      problem.value = /** @type {Error} */ (error).message;
    }
  };
  return html`<fieldset class="wide form">
    <legend>Parameters</legend>
    ${asJson.value
      ? html`<label class="wide"><span>JSON; empty: the draft of the handle</span>
          <textarea name="params" rows="8" spellcheck=${false} value=${json.value} onInput=${(/** @type {any} */ event) => (json.value = event.currentTarget.value)}></textarea>
          <${InvisibleLetters} value=${json.value} />
        </label>`
      : fields?.map((field, index) => html`<${One} key=${field.name} field=${field} name=${`parameter ${index}`} text=${texts.value?.[field.name] ?? ""} />`)}
    ${!asJson.value && fields?.length === 0 && html`<p class="faint wide">The job takes no parameters.</p>`}
    ${problem.value && html`<p class="error-text wide" role="alert">${visible(problem.value)}</p>`}
    ${fields !== null && fields.length > 0 && html`<div class="wide"><button type="button" onClick=${change}>${asJson.value ? "As fields" : "As JSON"}</button></div>`}
  </fieldset>`;
}

/** @param {{ field: SchemaField, name: string, text: string }} props */
function One({ field, name, text }) {
  const { kind, required, usual, choices, about } = field;
  const usually = usual === undefined ? "" : visible(typeof usual === "string" ? usual : writeExact(usual));
  const label = html`${visible(field.name)}${required && html` <small>required</small>`}${about && html` <small>${visible(about)}</small>`}`;
  if (kind !== "choice") {
    const placeholder = usual === undefined ? EXPECTED[kind] : usually;
    return html`<${ValueField} name=${name} label=${label} value=${text} read=${(/** @type {string} */ typed) => readField(field, typed)} required=${required} placeholder=${placeholder} />`;
  }
  return html`<label><span>${label}</span>
    <select name=${name} required=${required} defaultValue=${text}>
      <option value="" selected=${text === ""}>${usually ? `${usually} (default)` : ""}</option>
      ${choices.map((one) => {
        const value = writeExact(one);
        return html`<option key=${value} value=${value} selected=${text === value}>${visible(typeof one === "string" ? one : value)}</option>`;
      })}
    </select>
  </label>`;
}
