/** The time line of a run: how long it was in each status, attempt by attempt. `phases` is pure. */

import { html, useMemo, useRef, useSignal } from "../../../vendor/ui.js";
import { Elapsed, Moment, Status } from "../../parts/basic.js";
import { now, span } from "../../state/clock.js";
import { LongText, visible } from "../../parts/text.js";
import { workOf } from "../runs/filter.js";
import { barsOf } from "./bars.js";

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
const ENDS = 25; // phases that are listed at first from the begin, and from the end
const MORE = 250; // how many a click adds

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
  const known = useRef(/** @type {Phase[]} */ ([]));
  // The run is rendered with each frame of events, of which few change its phases.
  const list = useMemo(() => {
    const found = phases(run, events, first);
    return isSame(found, known.current) ? known.current : (known.current = found);
  }, [run, events, first]);
  const begin = list[0].from;
  const end = run.ended_at ?? now.value;
  const bars = useMemo(() => html`<${Bars} list=${list} end=${end} />`, [list, end]);
  const lines = useMemo(() => html`<${Phases} list=${list} />`, [list]);
  return html`<div class="timeline">
    ${bars}
    ${called.length > 0 &&
    html`<div class="bars called" aria-hidden="true">
      ${called.map(
        (child) => html`<span
          key=${child.id}
          class="bar ${child.status}"
          title=${visible(`child ${workOf(child)} of ${child.handle}, ${child.status}: ${span((child.ended_at ?? end) - child.created_at)}`)}
          style=${within(child.created_at, child.ended_at ?? end, begin, end)}
        ></span>`,
      )}
    </div>`}
    ${lines}
  </div>`;
}

/** @param {readonly Phase[]} list @param {readonly Phase[]} other */
function isSame(list, other) {
  return (
    list.length === other.length &&
    list.every((phase, index) => {
      const { status, from, to, attempt, why } = other[index];
      return phase.status === status && phase.from === from && phase.to === to && phase.attempt === attempt && phase.why === why;
    })
  );
}

/** Where a bar is. @param {number} from @param {number} to @param {number} begin of the time line @param {number} end */
function within(from, to, begin, end) {
  const whole = Math.max(end - begin, 0.001);
  return { left: `${(100 * (from - begin)) / whole}%`, width: `${(100 * (to - from)) / whole}%` };
}

/** @param {{ list: readonly Phase[], end: number }} props */
function Bars({ list, end }) {
  const bars = barsOf(list.filter(({ status }) => !ENDED.has(status)), end);
  return html`<div class="bars" aria-hidden="true">
    ${bars.map(
      (bar, index) => html`<span
        key=${index}
        class="bar ${bar.times[0][0]}"
        title=${told(bar)}
        style=${within(bar.from, bar.to, list[0].from, end)}
      ></span>`,
    )}
  </div>`;
}

/** @param {import("./bars.js").Bar} bar */
function told({ count, attempt, times }) {
  const [[longest, time]] = times;
  if (count > 1) return `${count.toLocaleString()} phases: ${times.map(([status, time]) => `${status === "unread" ? UNREAD : status} ${span(time)}`).join(", ")}`;
  return `${longest === "unread" ? UNREAD : longest}${attempt > 0 ? `, attempt ${attempt}` : ""}: ${span(time)}`;
}

/** The first and the last phases, and a button for those between them. @param {{ list: readonly Phase[] }} props */
function Phases({ list }) {
  const last = useSignal(ENDS);
  const missing = list.length - ENDS - last.value;
  const shown = missing > 1 ? [...list.slice(0, ENDS), null, ...list.slice(ENDS + missing)] : list;
  const line = (/** @type {Phase} */ { status, from, to, attempt, why }) => html`<li key=${`${from} ${status}`}>
    <${Moment} at=${from} />
    ${status === "unread" ? html`<span class="faint">${UNREAD}</span>` : html`<${Status} status=${status} />`}
    <span class="faint">${ENDED.has(status) ? `after ${span(from - list[0].from)}` : html`for <${Elapsed} from=${from} to=${to} />`}</span>
    ${attempt > 0 && html`<span class="faint">attempt ${attempt}</span>`}
    ${why && html`<${LongText} className="why" value=${why} />`}
  </li>`;
  const more = () => (last.value += MORE);
  return html`<ol tabindex="0" aria-label="Phases">
    ${shown.map((phase) =>
      phase ? line(phase) : html`<li key="more"><button class="quiet" onClick=${more}>${missing.toLocaleString()} more phases</button></li>`,
    )}
  </ol>`;
}
