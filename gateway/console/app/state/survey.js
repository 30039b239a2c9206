/**
 * What the records of all runs tell about the whole: bodies without a slot, the longest wait of each lane with what
 * blocks it, and what each executor executes. Pure. A few passes over the runs, made once per second and not per event.
 */

import { hasEnded } from "../../greenroom.js";

/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */

/**
 * @typedef {object} Wait
 * @property {RunRecord} run the run that waits longest for a slot of the lane
 * @property {number} since
 * @property {number} queued how many queued runs wait for a slot of the lane
 * @property {number} again how many suspended runs do
 * @property {RunRecord[]} blockers the runs that use slots of the lane, at most `KEPT`
 */

/**
 * @typedef {object} Survey
 * @property {RunRecord[]} detached runs whose bodies execute without a slot since a reset
 * @property {RunRecord[]} abandoned runs that ended although their bodies had not
 * @property {Map<string, Wait>} waits by lane
 * @property {Set<string>} again the suspended runs that wait for a slot, as far as the state tells
 * @property {Set<string>} lacking the demands, as of `demandOf`, for which an executor was lacking
 * @property {number} delayed how many queued runs wait for their time
 * @property {number} inHandles how many queued runs wait for their handle
 * @property {Map<string | null, RunRecord[]>} executing by executor; null for the process of the engine
 */

export const KEPT = 5;
const USES_SLOT = new Set(["running", "cancelling"]);

/** What a run needs of an executor, in its lane. @param {RunRecord} run */
export const demandOf = ({ lane, job, needs }) => JSON.stringify([lane, job, needs]);

/**
 * @param {ReadonlyMap<string, RunRecord>} runs
 * @param {ReadonlySet<string>} asked the runs with an open interrupt
 * @param {boolean} whole whether the state has the runs of all handles, lanes and jobs
 * @returns {Survey}
 */
export function survey(runs, asked = new Set(), whole = true) {
  const children = whole ? endsOfChildren(runs.values()) : new Map();
  /** @type {Survey} */
  const found = {
    detached: [],
    abandoned: [],
    waits: new Map(),
    again: new Set(),
    lacking: new Set(),
    delayed: 0,
    inHandles: 0,
    executing: new Map(),
  };
  /** @type {Map<string, RunRecord[]>} */
  const used = new Map();
  for (const run of runs.values()) {
    if (run.detached) found.detached.push(run);
    if (run.reason === "abandoned") found.abandoned.push(run);
    if (run.waiting_for === "executor") found.lacking.add(demandOf(run));
    if (USES_SLOT.has(run.status)) {
      add(found.executing, run.executor, run);
      if (!run.detached) add(used, run.lane, run);
    } else if (run.status === "queued") {
      if (run.waiting_for === "time") found.delayed += 1;
      else if (run.place === null) found.inHandles += 1;
      else count(found.waits, run, run.placed_at ?? run.created_at).queued += 1;
    } else if (run.status === "suspended") {
      const since = slotSince(run, asked, children);
      if (since === null) continue;
      found.again.add(run.id);
      count(found.waits, run, since).again += 1;
    }
  }
  for (const [lane, wait] of found.waits) wait.blockers = (used.get(lane) ?? []).slice(0, KEPT);
  return found;
}

/**
 * Since when a suspended run waits for a slot; null if it waits for something else, or if the state does not tell.
 * @param {RunRecord} run
 * @param {ReadonlySet<string>} asked
 * @param {ReadonlyMap<string, number>} children
 */
function slotSince({ id, waiting_for, updated_at }, asked, children) {
  if (waiting_for === "slot" || waiting_for === "executor") return updated_at;
  if (waiting_for === "answer") return asked.has(id) ? null : updated_at; // the end of an interrupt updates the record
  if (waiting_for !== "child") return null;
  const ended = children.get(id) ?? 0;
  return ended >= updated_at && ended < Infinity ? ended : null; // an earlier child is not the one that it waits for
}

/** When the last child of each run ended; infinity while one is pending. @param {Iterable<RunRecord>} runs */
function endsOfChildren(runs) {
  /** @type {Map<string, number>} */
  const ends = new Map();
  for (const run of runs) {
    if (run.parent === null) continue;
    const end = hasEnded(run) ? run.ended_at ?? 0 : Infinity;
    ends.set(run.parent, Math.max(end, ends.get(run.parent) ?? 0));
  }
  return ends;
}

/** @template Key @param {Map<Key, RunRecord[]>} lists @param {Key} key @param {RunRecord} run */
function add(lists, key, run) {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [run]);
  else list.push(run);
}

/** The wait of a run's lane, with the run if none waits longer. @param {Map<string, Wait>} waits @param {RunRecord} run @param {number} since */
function count(waits, run, since) {
  let wait = waits.get(run.lane);
  if (wait === undefined) waits.set(run.lane, (wait = { run, since, queued: 0, again: 0, blockers: [] }));
  else if (since < wait.since) [wait.run, wait.since] = [run, since];
  return wait;
}
