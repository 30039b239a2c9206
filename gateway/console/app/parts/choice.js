/** A choice in a form, with its label. It keeps what a person chose while the form renders again. */

import { html } from "../../vendor/ui.js";

/**
 * @param {object} props
 * @param {string} props.name
 * @param {string} props.label
 * @param {string} props.value at first
 * @param {Record<string, string>} props.options what each value means
 */
export function Choice({ name, label, value, options }) {
  return html`<label>
    <span>${label}</span>
    <select name=${name}>
      ${Object.entries(options).map(([one, words]) => html`<option key=${one} value=${one} selected=${one === value}>${words}</option>`)}
    </select>
  </label>`;
}
