/**
 * The ids of the runs that match a filter, newest first, kept up to date by what changed. Pure.
 *
 * Ids contain the time at which they were drawn, so their order is that of creation.
 */

import { hasEnded } from "../../../greenroom.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

export class Rows {
  /** @type {string[]} oldest first, because new runs are appended */
  #ids = [];
  #known = new Set();
  #older = new Map();
  #matches;

  /** @param {(run: RunRecord) => boolean} matches */
  constructor(matches) {
    this.#matches = matches;
  }

  get count() {
    return this.#ids.length;
  }

  /** The id in this row; the newest run is in row 0. @param {number} index */
  at = (index) => this.#ids[this.#ids.length - 1 - index];

  /** The row of an id, or -1. @param {string} id */
  indexOf = (id) => {
    if (!this.#known.has(id)) return -1;
    return this.#ids.length - 1 - this.#place(id);
  };

  /** The record of a run in the list. @param {string} id @param {ReadonlyMap<string, RunRecord>} runs @returns {RunRecord | undefined} */
  record(id, runs) {
    return runs.get(id) ?? this.#older.get(id);
  }

  /** Read all runs. @param {ReadonlyMap<string, RunRecord>} runs */
  rebuild(runs) {
    const found = new Set(this.#older.keys());
    for (const run of runs.values()) {
      if (this.#matches(run)) found.add(run.id);
      else found.delete(run.id);
    }
    this.#known = found;
    this.#ids = [...found].sort();
  }

  /**
   * Apply the changes of a frame. Returns the newest of the ids that the list lost, because neither the state nor the list
   * has their records any more.
   * @param {Iterable<string>} changed
   * @param {ReadonlyMap<string, RunRecord>} runs
   * @returns {string | undefined}
   */
  update(changed, runs) {
    let removed = false;
    let lost;
    for (const id of changed) {
      const run = runs.get(id);
      const belongs = run !== undefined && this.#matches(run);
      if (belongs === this.#known.has(id)) continue;
      if (belongs) this.#insert(id);
      else removed = true;
      if (!belongs) this.#older.delete(id);
    }
    const gone = (/** @type {string} */ id) => !this.#older.has(id) && !runs.has(id);
    if (!removed && !this.#ids.some(gone)) return undefined;
    this.#ids = this.#ids.filter((id) => {
      const run = this.record(id, runs);
      if (run !== undefined && this.#matches(run)) return true;
      this.#known.delete(id);
      if (run === undefined) lost = id;
      return false;
    });
    return lost;
  }

  /** The lowest id of the list above this one. @param {string} id */
  above(id) {
    const place = this.#place(id);
    return this.#ids[this.#ids[place] === id ? place + 1 : place];
  }

  /** The first row whose id is lower. @param {string} id */
  below = (id) => this.#ids.length - this.#place(id);

  /** Add ended runs that the state does not have any more. @param {RunRecord[]} older */
  add(older) {
    for (const run of older) {
      if (!this.#matches(run)) continue;
      this.#older.set(run.id, run);
      if (!this.#known.has(run.id)) this.#insert(run.id);
    }
  }

  /** Let ended runs of the list stay when the state drops them. @param {Iterable<RunRecord>} runs */
  keep(runs) {
    for (const run of runs) if (hasEnded(run)) this.#older.set(run.id, run);
  }

  /** Forget all runs that the state does not have, until the next `rebuild`. */
  forget() {
    this.#older.clear();
  }

  /** The lowest id of which the list has a record of its own, which the state can lack; undefined if it has none. */
  get oldestOwn() {
    let lowest;
    for (const id of this.#older.keys()) if (lowest === undefined || id < lowest) lowest = id;
    return lowest;
  }

  /**
   * Remove the runs of a range that the store has no more, unless the state has them.
   * @param {RunRecord[]} found all that the store has of the range
   * @param {string | undefined} before the ids of the range are lower; undefined for no limit
   * @param {string | undefined} last the lowest id of the range; undefined for no limit
   * @param {ReadonlyMap<string, RunRecord>} runs
   */
  removeDeleted(found, before, last, runs) {
    const there = new Set(found.map(({ id }) => id));
    const inRange = (/** @type {string} */ id) => (before === undefined || id < before) && (last === undefined || id >= last);
    for (const id of this.#older.keys()) {
      if (there.has(id) || !inRange(id)) continue;
      this.#older.delete(id);
      if (!runs.has(id)) this.#known.delete(id);
    }
    this.#ids = this.#ids.filter((id) => this.#known.has(id));
  }

  /** @param {string} id */
  #insert(id) {
    this.#known.add(id);
    const last = this.#ids.at(-1);
    if (last === undefined || last < id) this.#ids.push(id);
    else this.#ids.splice(this.#place(id), 0, id);
  }

  /** The first index whose id is not lower. @param {string} id */
  #place(id) {
    let low = 0;
    let high = this.#ids.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ids[middle] < id) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
