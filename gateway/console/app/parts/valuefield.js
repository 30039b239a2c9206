/** A field for JSON or text, which says as what its value is sent, and what is wrong with it. */

import { html, useSignal } from "../../vendor/ui.js";
import { InvisibleLetters, visible } from "./text.js";
import { valueOf } from "./value.js";

/**
 * The field refuses what begins like JSON and is not: the form that contains it cannot be submitted.
 * @param {object} props
 * @param {string} props.name
 * @param {any} props.label
 * @param {string} [props.value] the text at first
 * @param {typeof valueOf} [props.read] what a text means
 * @param {string} [props.placeholder]
 * @param {boolean} [props.required]
 */
export function ValueField({ name, label, value = "", read = valueOf, placeholder = "text, or JSON", required = false }) {
  const text = useSignal(value);
  const { kind, problem } = read(text.value);
  /** @param {any} event */
  const typed = ({ currentTarget: field }) => {
    text.value = field.value;
    field.setCustomValidity(field.value === "" ? "" : read(field.value).problem);
  };
  return html`<label class="value-field">
    <span>${label}</span>
    <input name=${name} defaultValue=${value} required=${required} placeholder=${placeholder} spellcheck=${false} autocomplete="off" onInput=${typed} aria-invalid=${text.value !== "" && problem !== ""} />
    <${InvisibleLetters} value=${text.value} />
    ${text.value !== "" && (problem ? html`<small class="error-text" role="alert">${visible(problem)}</small>` : html`<small class="faint">is sent as ${kind}</small>`)}
  </label>`;
}
