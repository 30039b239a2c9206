/** The time line of a run: how long it was in each status, attempt by attempt. `phases` is pure. */

import { html } from "../../../vendor/ui.js";
import { Elapsed, Moment, Status } from "../../parts/basic.js";
import { now, span } from "../../state/clock.js";
import { LongText, visible } from "../../parts/text.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/**
 * @typedef {object} Phase
 * @property {string} status
 * @property {number} from
 * @property {number | null} to null while it lasts
 * @property {number} attempt
 * @property {string} why
 */

const ENDED = new Set(["succeeded", "failed", "cancelled", "timed_out", "rejected"]);

/**
 * The record tells what precedes the events, if the history is so long that its begin is not read.
 * @param {RunRecord} run
 * @param {readonly GreenroomEvent[]} events
 * @returns {Phase[]}
 */
export function phases(run, events) {
  const known = changes(events);
  const first = known[0];
  if (first && first.from <= run.created_at) return known;
  const { started_at: started, ended_at: ended } = run;
  const to = first?.from ?? ended;
  /** @type {Phase[]} */
  const before = [{ status: started === null && !first ? run.status : "queued", from: run.created_at, to: started ?? to, attempt: 0, why: "" }];
  if (started !== null && (to === null || to > started)) {
    before.push({ status: first || ended !== null ? "earlier" : run.status, from: started, to, attempt: run.attempt, why: "" });
  }
  if (!first && ended !== null) before.push({ status: run.status, from: ended, to: ended, attempt: run.attempt, why: "" });
  return [...before, ...known];
}

/** @param {readonly GreenroomEvent[]} events @returns {Phase[]} */
function changes(events) {
  /** @type {Phase[]} */
  const found = [];
  for (const event of events) {
    if (event.type !== "run_state_changed") continue;
    const last = found.at(-1);
    if (last) last.to = event.at;
    const why = event.error ?? event.reason ?? event.waiting_for ?? "";
    found.push({ status: event.to, from: event.at, to: ENDED.has(event.to) ? event.at : null, attempt: event.attempt, why });
  }
  return found;
}

/**
 * `called`: the runs that the run has called.
 * @param {{ run: RunRecord, events: readonly GreenroomEvent[], called?: readonly RunRecord[] }} props
 */
export function Timeline({ run, events, called = [] }) {
  const list = phases(run, events);
  const begin = list[0].from;
  const end = run.ended_at ?? now.value;
  const whole = Math.max(end - begin, 0.001);
  const bars = list.filter(({ status }) => !ENDED.has(status));
  /** @param {number} from @param {number | null} to */
  const within = (from, to) => ({ left: `${(100 * (from - begin)) / whole}%`, width: `${(100 * ((to ?? end) - from)) / whole}%` });
  return html`<div class="timeline">
    <div class="bars" aria-hidden="true">
      ${bars.map(
        ({ status, from, to, attempt }) => html`<span
          key=${from}
          class="bar ${status}"
          title=${status === "earlier" ? "its statuses are not read" : `${status}, attempt ${attempt}: ${span((to ?? end) - from)}`}
          style=${within(from, to)}
        ></span>`,
      )}
    </div>
    ${called.length > 0 &&
    html`<div class="bars called" aria-hidden="true">
      ${called.map(
        ({ id, job, handle, status, created_at, ended_at }) => html`<span
          key=${id}
          class="bar ${status}"
          title=${visible(`child ${job} of ${handle}, ${status}: ${span((ended_at ?? end) - created_at)}`)}
          style=${within(created_at, ended_at)}
        ></span>`,
      )}
    </div>`}
    <ol tabindex="0" aria-label="Phases">
      ${list.filter(({ status }) => status !== "earlier").map(
        ({ status, from, to, attempt, why }) => html`<li key=${`${from} ${status}`}>
          <${Moment} at=${from} />
          <${Status} status=${status} />
          <span class="faint">${ENDED.has(status) ? `after ${span(from - begin)}` : html`for <${Elapsed} from=${from} to=${to} />`}</span>
          ${attempt > 0 && html`<span class="faint">attempt ${attempt}</span>`}
          ${why && html`<${LongText} className="why" value=${why} />`}
        </li>`,
      )}
    </ol>
  </div>`;
}
