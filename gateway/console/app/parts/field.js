/** A text field of a form, with its label. The form reads it by its name when it is submitted. */

import { html } from "../../vendor/ui.js";
import { InvisibleLetters } from "./text.js";

/**
 * @param {object} props
 * @param {string} props.name
 * @param {string} props.label
 * @param {unknown} [props.value] at first
 * @param {"text" | "number"} [props.type]
 * @param {string} [props.placeholder]
 * @param {string} [props.list] the id of a list of suggestions
 * @param {boolean} [props.required]
 */
export function Field({ name, label, value = "", type = "text", placeholder = "", list, required = false }) {
  return html`<label>
    <span>${label}</span>
    <input
      name=${name}
      type=${type}
      step=${type === "number" ? "any" : undefined}
      defaultValue=${String(value ?? "")}
      placeholder=${placeholder}
      list=${list}
      required=${required}
      spellcheck=${false}
      autocomplete="off"
    />
    <${InvisibleLetters} value=${value} />
  </label>`;
}
