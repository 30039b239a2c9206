/**
 * What happened lately, counted from the events: runs that started, ended and failed in each second of the last two
 * minutes, how long runs waited for their slot, the failures of the last hour, and blocked event loops.
 *
 * Times are those of the events, so the clock of the browser does not matter.
 *
 * A state contains only the runs that ended last. What happened before the first of them is unknown, and no number
 * claims to cover it.
 */

import { KEPT_ENDED_RUNS } from "../../greenroom.js";

export const SECONDS = 120;
const HOUR = 3600;
const MOST_FAILURES = 10_000;
const MOST_BLOCKAGES = 20;
const BLOCKED_LATELY = 600;
const FAILED = new Set(["failed", "timed_out", "rejected"]);
const ENDED = new Set([...FAILED, "succeeded", "cancelled"]);

/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("../../greenroom.js").RunLog} RunLog */
/** @typedef {{ started: number, ended: number, failed: number, waited: number }} Second */

/** @returns {Second} */
const empty = () => ({ started: 0, ended: 0, failed: 0, waited: 0 });

export class Rates {
  /** @type {Map<number, Second>} */
  #seconds = new Map();
  /** @type {Map<string, number>} */
  #failures = new Map();
  /** @type {Map<string, RunLog>} */
  #blockages = new Map();
  #last = 0;
  /** From when on everything is known, and from when on all failures are. */
  #since = -Infinity;
  #failuresSince = -Infinity;

  /** Begin again with what the records of these runs tell. @param {Iterable<RunRecord>} runs */
  restart(runs) {
    this.#seconds.clear();
    this.#failures.clear();
    this.#since = this.#failuresSince = -Infinity;
    let ended = 0;
    let first = Infinity;
    for (const { id, status, started_at, ended_at, placed_at, created_at } of runs) {
      if (started_at !== null) this.#started(started_at, started_at - (placed_at ?? created_at));
      if (ended_at === null) continue;
      this.#ended(id, status, ended_at);
      ended += 1;
      first = Math.min(first, ended_at);
    }
    if (ended < KEPT_ENDED_RUNS) return;
    this.#since = first;
    this.#failuresSince = Math.max(this.#failuresSince, first);
  }

  /**
   * Count an event. `runs` has the records after it.
   * @param {import("../../greenroom.js").GreenroomEvent} event
   * @param {ReadonlyMap<string, RunRecord>} runs
   */
  take(event, runs) {
    if (event.type === "run_log") this.#logged(event);
    if (event.type !== "run_state_changed") return;
    if (event.to === "running" && event.from === "queued") {
      const run = runs.get(event.run);
      this.#started(event.at, run ? event.at - (run.placed_at ?? run.created_at) : 0);
    }
    if (ENDED.has(event.to)) this.#ended(event.run, event.to, event.at);
  }

  /** The last two minutes up to `now`, oldest first; without the seconds that are unknown. @param {number} now @returns {Second[]} */
  series(now) {
    const end = Math.floor(Math.max(now, this.#last));
    const first = Math.max(end - SECONDS + 1, Math.ceil(this.#since));
    return Array.from({ length: Math.max(0, end - first + 1) }, (_, index) => this.#seconds.get(first + index) ?? empty());
  }

  /** The failures in the hour before `now`, and from when on they are known. @param {number} now */
  failures(now) {
    const hour = now - HOUR;
    for (const [id, at] of this.#failures) if (at < hour) this.#failures.delete(id);
    return { count: this.#failures.size, since: Math.max(hour, this.#failuresSince), complete: this.#failuresSince <= hour };
  }

  /** From when on the series is known, if not all of the last two minutes are. @param {number} now */
  unknownUntil(now) {
    return this.#since > Math.max(now, this.#last) - SECONDS ? this.#since : null;
  }

  /** The runs that blocked an event loop in the ten minutes before `now`. @param {number} now */
  blockedLately(now) {
    return [...this.#blockages.values()].filter(({ at }) => at >= now - BLOCKED_LATELY);
  }

  /** @param {RunLog} event */
  #logged(event) {
    if (event.by !== "engine" || !event.text.startsWith("blocked the event loop")) return;
    this.#blockages.delete(event.run);
    this.#blockages.set(event.run, event);
    if (this.#blockages.size > MOST_BLOCKAGES) this.#blockages.delete(this.#blockages.keys().next().value ?? "");
  }

  /** @param {number} at @param {number} waited */
  #started(at, waited) {
    const second = this.#second(at);
    second.started += 1;
    second.waited = Math.max(second.waited, waited);
  }

  /** @param {string} id @param {string} status @param {number} at */
  #ended(id, status, at) {
    const second = this.#second(at);
    second.ended += 1;
    if (!FAILED.has(status)) return;
    second.failed += 1;
    this.#failures.set(id, at);
    if (this.#failures.size > MOST_FAILURES) this.#forgetFirst();
  }

  /** @param {number} at */
  #second(at) {
    this.#last = Math.max(this.#last, at);
    const number = Math.floor(at);
    let found = this.#seconds.get(number);
    if (found !== undefined) return found;
    this.#seconds.set(number, (found = empty()));
    const oldest = Math.floor(this.#last) - SECONDS;
    for (const known of this.#seconds.keys()) if (known < oldest) this.#seconds.delete(known);
    return found;
  }

  #forgetFirst() {
    const [[first, at]] = this.#failures;
    this.#failures.delete(first);
    this.#failuresSince = at;
  }
}
