/** A run that waits for a slot of its lane: why it has none, and how many runs come before it. */

import { html, useMemo } from "../../../vendor/ui.js";
import { FilterLink, Moment } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { now } from "../../state/clock.js";
import { live } from "../../state/session.js";
import { isHeldByDraining, nextStart } from "../../state/why.js";
import { reasonsOf } from "../overview/queues.js";
import { NamedRuns } from "../runs/name.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const USUAL_AGE = 60; // seconds of waiting that raise a priority by 1

/** @param {{ run: RunRecord }} props */
export function ForSlot({ run }) {
  const { waits, again } = live.survey.value;
  const blockers = waits.get(run.lane)?.blockers ?? [];
  const rules = live.rules(run.lane);
  const second = Math.floor(now.value);
  const before = useMemo(() => ahead(run, rules.age, again), [run, rules.age, again, second]);
  const next = useMemo(() => (rules.rate ? nextStart(rules, ofLane(run.lane)) : null), [rules, second]);
  const why = reasonsOf(run);
  const isShared = rules.fair_by !== undefined;
  const isNext = why.length === 0 && before === 0 && !isShared && !isHeldByDraining(run, live.counts.value?.engine.draining ?? false);
  return html`<p>It waits for a slot of lane <${FilterLink} query=${{ lane: run.lane, status: ["queued", "suspended"] }} value=${run.lane} />${
      why.length > 0 ? html`: <${Text} value=${why.join("; ")} />` : isNext && ": its turn comes next"
    }.</p>
    <p>${isShared
      ? "A rule of the lane takes turns between keys, so the order of its queue is not known."
      : before === 0 ? "No run of the lane comes before it." : `${counted(before)} of the lane ${before === 1 ? "comes" : "come"} before it.`}</p>
    ${rules.rate && html`<p>The lane starts at most <${Text} value=${rules.rate} />${rules.rate_per === "key" ? " of each key" : ""}${
      next !== null && next > now.value && html`, and the next run not before <${Moment} at=${next} />`
    }.</p>`}
    ${rules.limit_per_key !== undefined && html`<p>At most ${rules.limit_per_key} of each key execute at once.</p>`}
    ${run.needs.length > 0 && html`<p>It needs an executor with <${Text} value=${run.needs.join(", ")} />.</p>`}
    ${blockers.length > 0 && html`<p>The slots are used by <${NamedRuns} runs=${blockers} most=${blockers.length} />.</p>`}`;
}

/** @param {string} lane */
const ofLane = (lane) => [...live.runs.values()].filter((run) => run.lane === lane);

/** How many runs of the lane get a slot before this one. @param {RunRecord} run @param {number | null | undefined} age a rule of the lane @param {Set<string>} again */
function ahead(run, age = USUAL_AGE, again) {
  let count = 0;
  for (const other of live.runs.values()) {
    if (other.lane === run.lane && other.id !== run.id && waitsForSlot(other, again) && isBefore(other, run, age)) count += 1;
  }
  return count;
}

/** @param {RunRecord} run @param {Set<string>} again */
const waitsForSlot = ({ id, status, place, waiting_for }, again) => (status === "queued" ? place !== null && waiting_for !== "time" : again.has(id));

/** The order of a queue, as in `docs/how-to/lane-rules.md`. @param {RunRecord} one @param {RunRecord} other @param {number | null} age */
function isBefore(one, other, age) {
  const rank = (/** @type {RunRecord} */ run) => (age === null ? -run.priority : (run.placed_at ?? run.created_at) - run.priority * age);
  return rank(one) < rank(other) || (rank(one) === rank(other) && Number(one.place) < Number(other.place));
}

/** @param {number} count */
export const counted = (count) => `${count.toLocaleString()} ${count === 1 ? "run" : "runs"}`;
