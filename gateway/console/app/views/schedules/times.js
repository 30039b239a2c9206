/** The due times of a schedule: the rule, and the next times in the schedule's time zone and in that of the reader. */

import { html } from "../../../vendor/ui.js";
import { Moment } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { now, span } from "../../state/clock.js";

/** @typedef {import("../../../greenroom.js").ScheduleRecord} ScheduleRecord */

/** When a schedule fires. @param {{ schedule: ScheduleRecord }} props */
export function Rule({ schedule: { cron, every, timezone } }) {
  if (cron === null) return html`<span>every ${interval(every ?? 0)}</span>`;
  return html`<span><code><${Text} value=${cron} /></code> <span class="faint"><${Text} value=${timezone} /></span></span>`;
}

/** @param {{ schedule: Pick<ScheduleRecord, "next" | "paused" | "cron" | "timezone"> }} props */
export function NextTimes({ schedule: { next, paused, cron, timezone } }) {
  if (paused) return html`<p class="faint">The schedule is paused: it does not fire.</p>`;
  if (next.length === 0) return html`<p class="faint">There is no due time any more.</p>`;
  return html`<ol class="times">
    ${next.map(
      (at) => html`<li key=${at}>
        <strong class="number">${at > now.value ? `in ${span(at - now.value)}` : "now"}</strong> <${Moment} at=${at} />
        ${cron !== null && html`<span class="faint">${inZone(at, timezone)} in <${Text} value=${timezone} /></span>`}
      </li>`,
    )}
  </ol>`;
}

const UNITS = /** @type {const} */ ([
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
]);

/** An interval in the largest unit that divides it. @param {number} seconds */
function interval(seconds) {
  const [size, unit] = UNITS.find(([one]) => seconds % one === 0) ?? [1, "s"];
  return `${seconds / size} ${unit}`;
}

/** A time in a time zone, if the browser knows it. @param {number} at @param {string} timeZone */
function inZone(at, timeZone) {
  try {
    return new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", timeZone }).format(at * 1000);
  } catch {
    return "an unknown time";
  }
}
