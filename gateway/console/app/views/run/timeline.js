/** The time line of a run: how long it was in each status, attempt by attempt. `phases` is pure. */

import { html } from "../../../vendor/ui.js";
import { Elapsed, Moment, Status } from "../../parts/basic.js";
import { now, span } from "../../state/clock.js";
import { LongText, visible } from "../../parts/text.js";
import { workOf } from "../runs/filter.js";

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
const UNREAD = "not read yet";

/**
 * Of a long history, only its begin and its end are read. Of the rest nothing is claimed: its status is `unread`. The
 * record tells when the run was created, started and ended.
 * @param {RunRecord} run
 * @param {readonly GreenroomEvent[]} events the end of the history
 * @param {readonly GreenroomEvent[]} [first] its first events, if `events` lacks them
 * @returns {Phase[]}
 */
export function phases(run, events, first = []) {
  const [oldest] = events;
  const reached = first.at(-1)?.seq ?? 0;
  if (oldest && (isCreation(oldest) || oldest.seq <= reached)) return changes([...first.filter(({ seq }) => seq < oldest.seq), ...events]);
  const begin = first.length > 0 ? changes(first) : [phase("queued", run.created_at, run.started_at ?? run.ended_at)];
  const last = begin[begin.length - 1];
  if (first.length > 0) last.to = first[first.length - 1].at;
  const end = latest(run, events);
  const to = end[0]?.from ?? null;
  last.to ??= to;
  const unread = last.to === null || (to !== null && to <= last.to) ? [] : [phase("unread", last.to, to)];
  return [...begin, ...unread, ...end];
}

/** The phases since the first of the last events. @param {RunRecord} run @param {readonly GreenroomEvent[]} events */
function latest(run, events) {
  const known = changes(events);
  const change = events.find((event) => event.type === "run_state_changed");
  const before = change ? change.from : run.ended_at === null ? run.status : null;
  if (events.length > 0 && before) known.unshift({ ...phase(before, events[0].at, change?.at ?? null), attempt: run.attempt > 1 ? 0 : run.attempt });
  const { ended_at: ended } = run;
  if (ended !== null && !ENDED.has(known.at(-1)?.status ?? "")) known.push(phase(run.status, ended, ended));
  return known;
}

/** @param {GreenroomEvent} event */
const isCreation = (event) => event.type === "run_state_changed" && event.from === null;

/** @param {string} status @param {number} from @param {number | null} to @returns {Phase} */
const phase = (status, from, to) => ({ status, from, to, attempt: 0, why: "" });

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
 * @param {{ run: RunRecord, events: readonly GreenroomEvent[], first: readonly GreenroomEvent[], called?: readonly RunRecord[] }} props
 */
export function Timeline({ run, events, first, called = [] }) {
  const list = phases(run, events, first);
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
          title=${`${status === "unread" ? UNREAD : status}${attempt > 0 ? `, attempt ${attempt}` : ""}: ${span((to ?? end) - from)}`}
          style=${within(from, to)}
        ></span>`,
      )}
    </div>
    ${called.length > 0 &&
    html`<div class="bars called" aria-hidden="true">
      ${called.map(
        (child) => html`<span
          key=${child.id}
          class="bar ${child.status}"
          title=${visible(`child ${workOf(child)} of ${child.handle}, ${child.status}: ${span((child.ended_at ?? end) - child.created_at)}`)}
          style=${within(child.created_at, child.ended_at)}
        ></span>`,
      )}
    </div>`}
    <ol tabindex="0" aria-label="Phases">
      ${list.map(
        ({ status, from, to, attempt, why }) => html`<li key=${`${from} ${status}`}>
          <${Moment} at=${from} />
          ${status === "unread" ? html`<span class="faint">${UNREAD}</span>` : html`<${Status} status=${status} />`}
          <span class="faint">${ENDED.has(status) ? `after ${span(from - begin)}` : html`for <${Elapsed} from=${from} to=${to} />`}</span>
          ${attempt > 0 && html`<span class="faint">attempt ${attempt}</span>`}
          ${why && html`<${LongText} className="why" value=${why} />`}
        </li>`,
      )}
    </ol>
  </div>`;
}
