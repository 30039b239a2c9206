/** The time line of a run: how long it was in each status, attempt by attempt. `phases` is pure. */

import { html, useMemo, useRef, useSignal } from "../../../vendor/ui.js";
import { Elapsed, Moment, Status } from "../../parts/basic.js";
import { now, span } from "../../state/clock.js";
import { LongText, visible } from "../../parts/text.js";
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
const ENDS = 25; // phases that are listed at first from the begin, and from the end
const MORE = 250; // how many a click adds

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
  const known = useRef(/** @type {Phase[]} */ ([]));
  // The run is rendered with each frame of events, of which few change its phases.
  const list = useMemo(() => {
    const found = phases(run, events);
    return isSame(found, known.current) ? known.current : (known.current = found);
  }, [run, events]);
  const begin = list[0].from;
  const end = run.ended_at ?? now.value;
  const bars = useMemo(() => html`<${Bars} list=${list} end=${end} />`, [list, end]);
  const lines = useMemo(() => html`<${Phases} list=${list} />`, [list]);
  return html`<div class="timeline">
    ${bars}
    ${called.length > 0 &&
    html`<div class="bars called" aria-hidden="true">
      ${called.map(
        ({ id, job, handle, status, created_at, ended_at }) => html`<span
          key=${id}
          class="bar ${status}"
          title=${visible(`child ${job} of ${handle}, ${status}: ${span((ended_at ?? end) - created_at)}`)}
          style=${within(created_at, ended_at ?? end, begin, end)}
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
  if (count > 1) return `${count.toLocaleString()} phases: ${times.map(([status, time]) => `${status} ${span(time)}`).join(", ")}`;
  return longest === "earlier" ? "its statuses are not read" : `${longest}, attempt ${attempt}: ${span(time)}`;
}

/** The first and the last phases, and a button for those between them. @param {{ list: readonly Phase[] }} props */
function Phases({ list }) {
  const last = useSignal(ENDS);
  const known = list.filter(({ status }) => status !== "earlier");
  const missing = known.length - ENDS - last.value;
  const shown = missing > 1 ? [...known.slice(0, ENDS), null, ...known.slice(ENDS + missing)] : known;
  const line = (/** @type {Phase} */ { status, from, to, attempt, why }) => html`<li key=${`${from} ${status}`}>
    <${Moment} at=${from} />
    <${Status} status=${status} />
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
