/**
 * The latest events, at most `size` of them, newest first, with a mark where events are missing. Pure.
 *
 * Each entry has a number of its own, since the events of a new engine begin again with `seq` 1.
 */

/** @typedef {import("../../greenroom.js").GreenroomEvent} GreenroomEvent */
/** @typedef {{ type: "gap", missed: number | null }} Gap `missed`: how many events; null if the engine began anew */
/** @typedef {{ number: number, item: GreenroomEvent | Gap }} Entry */

export class Tail {
  /** @type {Entry[]} oldest first; up to twice the size, so that old ones are removed many at a time */
  #entries = [];
  #size;
  #number = 0;

  /** @param {number} size */
  constructor(size) {
    this.#size = size;
  }

  get count() {
    return Math.min(this.#entries.length, this.#size);
  }

  /** How many entries came after those of a copy. @param {Tail} copy */
  since(copy) {
    return this.#number - copy.#number;
  }

  /** @param {GreenroomEvent | Gap} item */
  add(item) {
    this.#entries.push({ number: ++this.#number, item });
    if (this.#entries.length >= 2 * this.#size) this.#entries = this.#entries.slice(-this.#size);
  }

  /** The entry in this row; the newest one is in row 0. @param {number} row */
  at = (row) => this.#entries[this.#entries.length - 1 - row];

  /** The row of the entry with this number, or -1. @param {number} number */
  rowOf = (number) => {
    const row = this.#number - number;
    return number > 0 && row >= 0 && row < this.count ? row : -1;
  };

  /** The same entries, in a tail that later ones do not change. */
  copy() {
    const copy = new Tail(this.#size);
    copy.#entries = this.#entries.slice(-this.#size);
    copy.#number = this.#number;
    return copy;
  }
}
