/** Small parts that all views use: links, statuses, times, tags and progress. */

import { ExactNumber } from "../../greenroom.js";
import { html } from "../../vendor/ui.js";
import { to } from "../state/address.js";
import { exact, moment, now, span } from "../state/clock.js";
import { Icon } from "./icon.js";
import { Text } from "./text.js";

/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */

const MOST_BRIEF = 13; // characters
const COMPACT = new Intl.NumberFormat(undefined, { notation: "compact" });
const PERCENT = new Intl.NumberFormat(undefined, { style: "percent" });
const SIGNS = /** @type {const} */ ({
  queued: "circle",
  running: "play",
  suspended: "pause",
  cancelling: "dashes",
  succeeded: "tick",
  failed: "cross",
  cancelled: "none",
  timed_out: "clock",
  rejected: "stop",
});

/** A status, told by its word and a sign, not by color alone. @param {{ status: string }} props */
export function Status({ status }) {
  const sign = SIGNS[/** @type {keyof typeof SIGNS} */ (status)] ?? "circle";
  return html`<span class="status ${status}"><${Icon} name=${sign} />${status.replace("_", " ")}</span>`;
}

/**
 * Links take a `tabindex`, as in a row of a list, of which only one link is reached with Tab.
 * @param {{ id: string, short?: boolean, tabindex?: number }} props
 */
export function RunLink({ id, short = false, tabindex }) {
  return html`<a class=${short ? "mono short" : "mono"} tabindex=${tabindex} href=${to("runs", [id])} title=${id}>${short ? `…${id.slice(-8)}` : id}</a>`;
}

/** @param {{ name: string, tabindex?: number }} props */
export function HandleLink({ name, tabindex }) {
  return html`<a tabindex=${tabindex} href=${to("handles", [name])}><${Text} value=${name} /></a>`;
}

/** A list of runs with a filter. @param {{ query: Record<string, string | string[]>, value: string, tabindex?: number }} props */
export function FilterLink({ query, value, tabindex }) {
  return html`<a tabindex=${tabindex} href=${to("runs", [], query)}><${Text} value=${value} /></a>`;
}

/** A local time; the exact one appears on hover. @param {{ at: number | null }} props */
export function Moment({ at }) {
  if (at === null) return html`<span class="faint">–</span>`;
  return html`<time datetime=${exact(at)} title=${exact(at)}>${moment(at)}</time>`;
}

/** The time since `from`, which moves until there is a `to`. @param {{ from: number | null, to?: number | null }} props */
export function Elapsed({ from, to = null }) {
  if (from === null) return html`<span class="faint">–</span>`;
  const until = to ?? now.value;
  return html`<span class="number" title=${`since ${exact(from)}`}>${span(until - from)}</span>`;
}

/** @param {{ tags: Record<string, string>, tabindex?: number }} props */
export function Tags({ tags, tabindex }) {
  return Object.entries(tags).map(
    ([name, value]) => html`<a key=${name} class="tag" tabindex=${tabindex} href=${to("runs", [], { tag: `${name}=${value}` })}>
      <${Text} value=${`${name}=${value}`} />
    </a>`,
  );
}

/** `brief`: in a narrow place. Numbers are never cut off there: long ones become a percentage. @param {{ run: RunRecord, brief?: boolean }} props */
export function Progress({ run, brief = false }) {
  const { done, total } = run.progress ?? {};
  if (!isNumber(done)) return null;
  const [part, most] = [Number(done), isNumber(total) ? Number(total) : 0];
  if (most <= 0) {
    return html`<span class="number" title=${String(done)}>${brief && String(done).length > MOST_BRIEF ? COMPACT.format(part) : String(done)}</span>`;
  }
  const whole = `${done} / ${total}`;
  return html`<span class="progress">
    <progress value=${Math.min(part, most)} max=${most} aria-label="progress"></progress>
    <span class="number" title=${whole}>${brief && whole.length > MOST_BRIEF ? PERCENT.format(part / most) : whole}</span>
  </span>`;
}

/** @param {unknown} value */
const isNumber = (value) => typeof value === "number" || value instanceof ExactNumber;

/** What stands where there is nothing. @param {{ children?: any }} props */
export const Nothing = ({ children }) => html`<p class="nothing">${children}</p>`;
