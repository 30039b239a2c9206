/** A JSON value that can be unfolded. What is folded is not rendered, so a large value costs little. */

import { ExactNumber, writeExact } from "../../greenroom.js";
import { html, useEffect, useRef, useState } from "../../vendor/ui.js";
import { report } from "../state/toasts.js";
import { brief } from "./brief.js";
import { visible } from "./text.js";

const PAGE = 100;
const LONG = 600;
const BRIEF = 100;
const SMALL = 300;

/**
 * `name`: what the value is, such as `the result`; `open`: the first level is unfolded, and the second one where it is small.
 * @param {{ value: unknown, name: string, open?: boolean }} props
 */
export function Json({ value, name, open = true }) {
  const [plain, setPlain] = useState("");
  const copy = () => {
    const text = writeExact(value, 2);
    if (navigator.clipboard) report(() => navigator.clipboard.writeText(text), "copied");
    else setPlain(text); // over plain HTTP, except from this machine
  };
  return html`<div class="json mono">
    <button class="quiet copy" onClick=${copy} aria-label=${`copy ${visible(name)}`} title="Copy as JSON">copy</button>
    ${plain && html`<${Selected} text=${plain} />`}
    <${Value} value=${value} depth=${open ? 1 : -1} />
  </div>`;
}

/** A text for the person to copy. @param {{ text: string }} props */
function Selected({ text }) {
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useEffect(() => field.current?.select(), []);
  return html`<label class="plain">Press Ctrl+C to copy
    <textarea ref=${field} rows="4" readonly value=${text}></textarea>
  </label>`;
}

/** `depth`: how many levels are unfolded at first; 0: this one if it is small. @param {{ value: any, depth: number, name?: string }} props */
function Value({ value, depth, name }) {
  const label = name === undefined ? null : html`<span class="json-name">${visible(name)}: </span>`;
  if (typeof value !== "object" || value === null || value instanceof ExactNumber) return html`<div class="json-line">${label}<${Plain} value=${value} /></div>`;
  return html`<${Group} value=${value} depth=${depth} label=${label} />`;
}

/** @param {{ value: any, depth: number, label: any }} props */
function Group({ value, depth, label }) {
  const [open, setOpen] = useState(() => depth > 0 || (depth === 0 && !brief(value, SMALL).endsWith("…")));
  const [shown, setShown] = useState(PAGE);
  const entries = Object.entries(value);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return html`<div class="json-line">${label}${left}${right}</div>`;
  return html`<details class="json-group" open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>${label}${open ? left : html`<bdi>${visible(brief(value, BRIEF))}</bdi>`}</summary>
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
