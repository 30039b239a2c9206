/** A JSON value that can be unfolded. What is folded is not rendered, so a large value costs little. */

import { ExactNumber, writeExact } from "../../greenroom.js";
import { html, useState } from "../../vendor/ui.js";
import { attempt } from "../state/toasts.js";
import { visible } from "./text.js";

const PAGE = 100;
const LONG = 600;

/** @param {{ value: unknown, open?: boolean }} props */
export function Json({ value, open = true }) {
  const copy = () => attempt(() => navigator.clipboard.writeText(writeExact(value, 2)), "copied");
  return html`<div class="json mono">
    <button class="quiet copy" onClick=${copy} title="Copy as JSON">copy</button>
    <${Value} value=${value} depth=${open ? 1 : 0} />
  </div>`;
}

/** `depth`: how many levels are unfolded at first. @param {{ value: any, depth: number, name?: string }} props */
function Value({ value, depth, name }) {
  const label = name === undefined ? null : html`<span class="json-name">${visible(name)}: </span>`;
  if (typeof value !== "object" || value === null || value instanceof ExactNumber) return html`<div class="json-line">${label}<${Plain} value=${value} /></div>`;
  return html`<${Group} value=${value} depth=${depth} label=${label} />`;
}

/** @param {{ value: any, depth: number, label: any }} props */
function Group({ value, depth, label }) {
  const [open, setOpen] = useState(depth > 0);
  const [shown, setShown] = useState(PAGE);
  const entries = Object.entries(value);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return html`<div class="json-line">${label}${left}${right}</div>`;
  const count = `${entries.length} ${Array.isArray(value) ? "item" : "field"}${entries.length === 1 ? "" : "s"}`;
  return html`<details class="json-group" open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>${label}${left}${open ? "" : ` ${count} ${right}`}</summary>
    ${open &&
    html`<div class="json-inside">
        ${entries.slice(0, shown).map(([key, one]) => html`<${Value} key=${key} name=${key} value=${one} depth=${depth - 1} />`)}
        ${shown < entries.length &&
        html`<button class="quiet" onClick=${() => setShown(shown + 10 * PAGE)}>${entries.length - shown} more</button>`}
      </div>
      <div class="json-line">${right}</div>`}
  </details>`;
}

/** @param {{ value: unknown }} props */
function Plain({ value }) {
  const [whole, setWhole] = useState(false);
  const text = writeExact(value);
  const kind = value === null ? "null" : value instanceof ExactNumber ? "number" : typeof value;
  if (text.length <= LONG || whole) return html`<bdi class="json-${kind}">${visible(text)}</bdi>`;
  return html`<bdi class="json-${kind}">${visible(text.slice(0, LONG))}…</bdi>
    <button class="quiet" onClick=${() => setWhole(true)}>${text.length - LONG} more characters</button>`;
}
