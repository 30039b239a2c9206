/** A limit that whoever may moves with a slider, and how much of it is in use. */

import { html, useRef, useSignal } from "../../vendor/ui.js";
import { may } from "../state/session.js";
import { attempt, toast } from "../state/toasts.js";

const LEAST_RANGE = 10;
const MOST = 2 ** 31 - 1; // as in protocol/validation.py

/** @param {{ used: number, limit: number }} props */
export function Use({ used, limit }) {
  return html`<span class="use">
    <meter min="0" max=${Math.max(1, limit, used)} value=${used} aria-label="slots in use"></meter>
    <span class="number">${used}</span>
  </span>`;
}

/**
 * A limit. While it is moved, the slider shows where it would be; it is set when it is let go.
 * @param {{ label: string, value: number, set: (limit: number) => Promise<unknown> }} props
 */
export function Limit({ label, value, set }) {
  const moved = useSignal(/** @type {number | null} */ (null));
  const latest = useRef(value);
  latest.current = value;
  if (!may("admin")) return html`<span class="number">${value.toLocaleString()}</span>`;
  const shown = moved.value ?? value;
  /** @param {any} event */
  const change = async (event) => {
    const field = event.currentTarget;
    const next = field.valueAsNumber;
    if (!Number.isInteger(next) || next < 0 || next > MOST) {
      toast(`${label} must be a whole number from 0 to ${MOST.toLocaleString()} (got ${field.value || "nothing"})`, "error");
    } else if (next === value || (await attempt(() => set(next).then(() => true)))) {
      moved.value = null;
      return;
    }
    field.value = latest.current; // what the engine has
    moved.value = null;
  };
  return html`<span class="limit">
    <input
      type="range"
      min="0"
      max=${Math.max(LEAST_RANGE, 2 * value)}
      value=${shown}
      aria-label=${`Change ${label}`}
      onInput=${(/** @type {any} */ event) => (moved.value = event.currentTarget.valueAsNumber)}
      onChange=${change}
    />
    <input type="number" min="0" value=${shown} aria-label=${label} onChange=${change} />
  </span>`;
}
