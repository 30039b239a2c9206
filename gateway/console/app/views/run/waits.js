/** Why a queued run does not execute yet, and where it stands in the queue. */

import { html, useMemo } from "../../../vendor/ui.js";
import { FilterLink, HandleLink, Moment, RunLink } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { now } from "../../state/clock.js";
import { live } from "../../state/session.js";
import { workOf } from "../runs/filter.js";
import { reason } from "../overview/queues.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const USUAL_AGE = 60; // seconds of waiting that raise a priority by 1

/** @param {{ run: RunRecord }} props */
export function Waits({ run }) {
  if (run.status !== "queued") return null;
  return html`<section class="card waits" aria-labelledby="waits-title">
    <h2 id="waits-title">Why it waits</h2>
    ${run.waiting_for === "time" ? html`<${ForTime} run=${run} />` : run.place === null ? html`<${ForHandle} run=${run} />` : html`<${ForSlot} run=${run} />`}
  </section>`;
}

/** @param {{ run: RunRecord }} props */
const ForTime = ({ run }) => html`<p>It does not start before <${Moment} at=${run.not_before} />.</p>`;

/** @param {{ run: RunRecord }} props */
function ForHandle({ run }) {
  const { active_run: active = null, waiting = [] } = live.handle(run.handle) ?? {};
  const before = waiting.indexOf(run.id);
  const place = before === 0 ? "This run is the next one." : `${counted(before)} of the handle ${before === 1 ? "comes" : "come"} first.`;
  return html`<p>The handle <${HandleLink} name=${run.handle} /> is busy${active && html` with run <${RunLink} id=${active} short />`}. ${before >= 0 && place}</p>`;
}

/** @param {{ run: RunRecord }} props */
function ForSlot({ run }) {
  const wait = live.survey.value.waits.get(run.lane);
  const rules = live.rules(run.lane);
  const before = useMemo(() => ahead(run, rules.age), [run, rules.age, Math.floor(now.value)]);
  const isShared = rules.fair_by !== undefined;
  return html`<p>It waits for a slot of lane <${FilterLink} query=${{ lane: run.lane, status: "queued" }} value=${run.lane} />: ${reason(run.lane, run) || "its turn comes next"}.</p>
    <p>${isShared
      ? "A rule of the lane takes turns between keys, so the order of its queue is not known."
      : before === 0 ? "No run of the lane comes before it." : `${counted(before)} of the lane ${before === 1 ? "comes" : "come"} before it.`}</p>
    ${rules.rate && html`<p>The lane starts at most <${Text} value=${rules.rate} />${rules.rate_per === "key" ? " of each key" : ""}.</p>`}
    ${rules.limit_per_key !== undefined && html`<p>At most ${rules.limit_per_key} of each key execute at once.</p>`}
    ${run.needs.length > 0 && html`<p>It needs an executor with <${Text} value=${run.needs.join(", ")} />.</p>`}
    ${wait && wait.blockers.length > 0 &&
    html`<p>The slots are used by ${wait.blockers.map((one) => html`<span key=${one.id}><${RunLink} id=${one.id} short /> <${Text} value=${workOf(one)} /> </span>`)}</p>`}`;
}

/** How many runs of the lane get a slot before this one. @param {RunRecord} run @param {number | null | undefined} age a rule of the lane */
function ahead(run, age = USUAL_AGE) {
  let count = 0;
  for (const other of live.runs.values()) {
    if (other.lane === run.lane && other.status === "queued" && other.place !== null && other.waiting_for !== "time" && isBefore(other, run, age)) count += 1;
  }
  return count;
}

/** The order of a queue, as in `docs/how-to/lane-rules.md`. @param {RunRecord} one @param {RunRecord} other @param {number | null} age */
function isBefore(one, other, age) {
  const rank = (/** @type {RunRecord} */ run) => (age === null ? -run.priority : (run.placed_at ?? run.created_at) - run.priority * age);
  return rank(one) < rank(other) || (rank(one) === rank(other) && Number(one.place) < Number(other.place));
}

/** @param {number} count */
const counted = (count) => `${count.toLocaleString()} ${count === 1 ? "run" : "runs"}`;
