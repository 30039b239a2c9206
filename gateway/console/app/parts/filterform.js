/** The form above a list that filters it. A phone shows it when asked to, because it would fill half the window. */

import { html, useSignal } from "../../vendor/ui.js";

/** @param {{ count: number, children?: any }} props `count`: how many filters are set */
export function FilterForm({ count, children }) {
  const open = useSignal(false);
  return html`<form class="filters ${open.value ? "open" : ""}" aria-label="Filter" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <button type="button" class="fold" aria-expanded=${open.value} onClick=${() => (open.value = !open.value)}>Filter${count > 0 ? ` (${count})` : ""}</button>
    ${children}
  </form>`;
}
