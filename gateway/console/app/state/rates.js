/**
 * What happened lately, counted from the events: runs that started, ended and failed in each second of the last two
 * minutes, how long runs waited for their slot, and the failures of the last hour.
 *
 * Times are those of the events, so the clock of the browser does not matter.
 */

const SECONDS = 120;
const HOUR = 3600;
const MOST_FAILURES = 10_000;
const FAILED = new Set(["failed", "timed_out", "rejected"]);
const ENDED = new Set([...FAILED, "succeeded", "cancelled"]);

/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */
/** @typedef {{ started: number, ended: number, failed: number, waited: number }} Second */

/** @returns {Second} */
const empty = () => ({ started: 0, ended: 0, failed: 0, waited: 0 });

export class Rates {
  /** @type {Map<number, Second>} */
  #seconds = new Map();
  /** @type {Map<string, number>} */
  #failures = new Map();
  #last = 0;

  /** Begin again with the failures of these runs. @param {RunRecord[]} ended */
  restart(ended) {
    this.#seconds.clear();
    this.#failures.clear();
    for (const run of ended) {
      if (FAILED.has(run.status)) this.#failures.set(run.id, run.ended_at ?? run.updated_at);
    }
  }

  /**
   * Count an event. `runs` has the records after it.
   * @param {import("../../greenroom.js").GreenroomEvent} event
   * @param {ReadonlyMap<string, RunRecord>} runs
   */
  take(event, runs) {
    this.#last = Math.max(this.#last, event.at);
    if (event.type !== "run_state_changed") return;
    const second = this.#second(Math.floor(event.at));
    if (event.to === "running" && event.from === "queued") {
      const run = runs.get(event.run);
      second.started += 1;
      if (run) second.waited = Math.max(second.waited, event.at - (run.placed_at ?? run.created_at));
    }
    if (!ENDED.has(event.to)) return;
    second.ended += 1;
    if (!FAILED.has(event.to)) return;
    second.failed += 1;
    this.#failures.set(event.run, event.at);
    if (this.#failures.size > MOST_FAILURES) this.#forgetFirst();
  }

  /** The last two minutes up to `now`, oldest first. @param {number} now @returns {Second[]} */
  series(now) {
    const end = Math.floor(Math.max(now, this.#last));
    return Array.from({ length: SECONDS }, (_, index) => this.#seconds.get(end - SECONDS + 1 + index) ?? empty());
  }

  /** The number of known failures in the hour before `now`. @param {number} now */
  failedInTheLastHour(now) {
    for (const [id, at] of this.#failures) if (at < now - HOUR) this.#failures.delete(id);
    return this.#failures.size;
  }

  /** @param {number} at */
  #second(at) {
    let found = this.#seconds.get(at);
    if (found === undefined) {
      this.#seconds.set(at, (found = empty()));
      for (const known of this.#seconds.keys()) if (known < at - SECONDS) this.#seconds.delete(known);
    }
    return found;
  }

  #forgetFirst() {
    const [first] = this.#failures.keys();
    this.#failures.delete(first);
  }
}
