/**
 * What the records of all runs tell about the whole: bodies without a slot, the longest wait of each lane with what
 * blocks it, and what each executor executes. Pure. One pass over the runs, made once per second and not per event.
 */

/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */

/**
 * @typedef {object} Wait
 * @property {RunRecord} run the run that waits longest for a slot of the lane
 * @property {number} since
 * @property {number} queued how many runs wait for a slot of the lane
 * @property {RunRecord[]} blockers the runs that use slots of the lane, at most `KEPT`
 */

/**
 * @typedef {object} Survey
 * @property {RunRecord[]} stuck runs whose bodies may ignore their cancellation
 * @property {Map<string, Wait>} waits by lane
 * @property {number} delayed how many queued runs wait for their time
 * @property {number} inHandles how many queued runs wait for their handle
 * @property {Map<string | null, RunRecord[]>} executing by executor; null for the process of the engine
 */

export const KEPT = 5;
const USES_SLOT = new Set(["running", "cancelling"]);

/** @param {Iterable<RunRecord>} runs @returns {Survey} */
export function survey(runs) {
  /** @type {RunRecord[]} */
  const stuck = [];
  /** @type {Map<string, Wait>} */
  const waits = new Map();
  /** @type {Map<string, RunRecord[]>} */
  const used = new Map();
  /** @type {Map<string | null, RunRecord[]>} */
  const executing = new Map();
  let delayed = 0;
  let inHandles = 0;
  for (const run of runs) {
    if (run.detached || run.reason === "abandoned") stuck.push(run);
    if (USES_SLOT.has(run.status)) {
      add(executing, run.executor, run);
      if (!run.detached) add(used, run.lane, run);
    } else if (run.status === "queued") {
      if (run.waiting_for === "time") delayed += 1;
      else if (run.place === null) inHandles += 1;
      else count(waits, run);
    }
  }
  for (const [lane, wait] of waits) wait.blockers = (used.get(lane) ?? []).slice(0, KEPT);
  return { stuck, waits, delayed, inHandles, executing };
}

/** @template Key @param {Map<Key, RunRecord[]>} lists @param {Key} key @param {RunRecord} run */
function add(lists, key, run) {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [run]);
  else list.push(run);
}

/** @param {Map<string, Wait>} waits @param {RunRecord} run */
function count(waits, run) {
  const since = run.placed_at ?? run.created_at;
  const known = waits.get(run.lane);
  if (known === undefined) {
    waits.set(run.lane, { run, since, queued: 1, blockers: [] });
    return;
  }
  known.queued += 1;
  if (since < known.since) [known.run, known.since] = [run, since];
}
