/** A limit that whoever may moves with a slider, and how much of it is in use. */

import { html, useSignal } from "../../vendor/ui.js";
import { may } from "../state/session.js";
import { attempt, toast } from "../state/toasts.js";

const LEAST_RANGE = 10;
const MOST = 2 ** 31 - 1; // as in protocol/validation.py

/** `of`: whether the limit is written, too. @param {{ used: number, limit: number, of?: boolean }} props */
export function Use({ used, limit, of = false }) {
  return html`<span class="use">
    <meter min="0" max=${Math.max(1, limit, used)} value=${used} aria-label="slots in use"></meter>
    <span class="number">${used}${of && ` of ${limit}`}</span>
  </span>`;
}

/**
 * A limit. While it is moved or written, both fields show what it would be, whatever happens meanwhile; it is set when
 * the slider is let go, or the field is left.
 * @param {{ label: string, value: number, set: (limit: number) => Promise<unknown> }} props
 */
export function Limit({ label, value, set }) {
  const moved = useSignal(/** @type {string | null} */ (null));
  if (!may("admin")) return html`<span class="number">${value.toLocaleString()}</span>`;
  const shown = moved.value ?? value;
  /** @param {any} event */
  const change = async (event) => {
    const field = event.currentTarget;
    const next = field.valueAsNumber;
    if (!Number.isInteger(next) || next < 0 || next > MOST) {
      toast(`${label} must be a whole number from 0 to ${MOST.toLocaleString()} (got ${field.value || "nothing"})`, "error");
    } else if (next !== value) {
      await attempt(() => set(next));
    }
    moved.value = null; // what the engine has
  };
  /** @param {any} event */
  const move = (event) => (moved.value = event.currentTarget.value);
  const leave = () => Number(moved.value) === value && (moved.value = null); // the browser reports no change
  return html`<span class="limit">
    <input
      type="range"
      min="0"
      max=${Math.max(LEAST_RANGE, 2 * value)}
      value=${shown}
      aria-label=${`Change ${label}`}
      onInput=${move}
      onChange=${change}
    />
    <input type="number" min="0" value=${shown} aria-label=${label} onInput=${move} onChange=${change} onBlur=${leave} />
  </span>`;
}
