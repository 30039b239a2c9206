/**
 * Why a run that waits for a slot has none, as far as the state tells. Pure: the rules of the engine's order
 * (`actors/scheduling/order.py`), in words.
 */

import { demandOf } from "./survey.js";

/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("../../greenroom.js").LaneRules} LaneRules */

/**
 * @typedef {object} Scene what the engine has besides the run
 * @property {import("../../greenroom.js").Counts} counts
 * @property {LaneRules} rules of the run's lane
 * @property {readonly [string, import("../../greenroom.js").ExecutorState][]} executors
 * @property {Pick<import("./survey.js").Survey, "executing" | "lacking">} survey
 */

/** Whether a run does not start because the engine drains. Runs that have begun, and their children, do. @param {RunRecord} run @param {boolean} draining */
export const isHeldByDraining = (run, draining) => draining && run.status === "queued" && run.parent === null;

/**
 * Why the run does not start, apart from draining and from the runs before it; empty if its turn comes next.
 * @param {RunRecord} run
 * @param {Scene} scene
 * @returns {string[]}
 */
export function reasons(run, { counts, rules, executors, survey }) {
  const { executing, max_concurrent: most } = counts.engine;
  const lane = Object.hasOwn(counts.lanes, run.lane) ? counts.lanes[run.lane] : { paused: false, limit: null, executing: 0 };
  const found = [
    lane.paused && "the lane is paused",
    lane.limit === 0 && "the limit of the lane is 0",
    most === 0 && "the global limit is 0",
    executorsLack(run, executors, survey),
    lane.limit && lane.executing >= lane.limit && `${lane.executing} of ${lane.limit} slots of the lane are in use`,
    most && executing >= most && `${executing} of ${most} slots of the engine are in use`,
  ].filter((one) => typeof one === "string" && one !== "");
  if (found.length > 0) return /** @type {string[]} */ (found);
  const continues = run.status === "suspended" && run.interactive; // in the body that it has: that takes no token
  if (!continues && (rules.rate !== undefined || rules.limit_per_key !== undefined)) return ["a rule of the lane delays it"];
  return run.status === "suspended" && run.reason === "recovered" ? ["another run that executed then is tried first"] : [];
}

/**
 * What no executor has that the run needs; empty if one can take it. The process of the engine has no labels, and its
 * jobs are not in the state: so a run without labels lacks an executor only if the engine has reported that.
 * @param {RunRecord} run
 * @param {Scene["executors"]} executors
 * @param {Scene["survey"]} survey
 */
function executorsLack(run, executors, { executing, lacking }) {
  const { job, needs } = run;
  if (needs.length === 0 && !lacking.has(demandOf(run))) return "";
  if (executors.length === 0) return "no executor is attached";
  const attached = executors.filter(([, { status }]) => status !== "disconnected");
  if (attached.length === 0) return "all executors are disconnected";
  const having = attached.filter(([, { jobs }]) => jobs.includes(job));
  if (having.length === 0) return `no executor has the job ${job}`;
  const able = having.filter(([, { labels }]) => needs.every((label) => labels.includes(label)));
  if (able.length === 0) return `no executor with the job ${job} has the ${needs.length === 1 ? "label" : "labels"} ${needs.join(", ")}`;
  const accepting = able.filter(([, { status }]) => status !== "draining");
  if (accepting.length === 0) return "the executors that can execute it are draining";
  const used = (/** @type {string} */ id) => (executing.get(id) ?? []).filter(({ detached }) => !detached).length;
  if (accepting.every(([id, { slots }]) => slots !== null && used(id) >= slots)) return "no executor that can execute it has a free slot";
  return "";
}

const RATE = /^\s*(\d+)\s*\/\s*(\d*)\s*(s|min|h|d)/;
const SECONDS = { s: 1, min: 60, h: 3600, d: 86_400 };

/**
 * The time before which the rate of a lane starts no run; null if the state does not tell, as with a burst or a rate of
 * each key.
 * @param {LaneRules} rules
 * @param {Iterable<RunRecord>} runs of the lane
 */
export function nextStart({ rate, burst = 1, rate_per: per = "lane" }, runs) {
  const found = RATE.exec(rate ?? "");
  if (!found || burst !== 1 || per !== "lane") return null;
  const [, count, periods, unit] = found;
  let last = -Infinity;
  for (const { started_at: at } of runs) if (at !== null) last = Math.max(last, at);
  return last === -Infinity ? null : last + (Number(periods || 1) * SECONDS[/** @type {keyof SECONDS} */ (unit)]) / Number(count);
}
