/** The latest events, at most `size` of them, newest first. Pure. */

/** @typedef {import("../../greenroom.js").GreenroomEvent} GreenroomEvent */

export class Tail {
  /** @type {GreenroomEvent[]} oldest first; up to twice the size, so that old ones are removed many at a time */
  #events = [];
  #size;

  /** @param {number} size */
  constructor(size) {
    this.#size = size;
  }

  get count() {
    return Math.min(this.#events.length, this.#size);
  }

  /** @param {GreenroomEvent} event */
  add(event) {
    this.#events.push(event);
    if (this.#events.length >= 2 * this.#size) this.#events = this.#events.slice(-this.#size);
  }

  /** The event in this row; the newest one is in row 0. @param {number} row */
  at = (row) => this.#events[this.#events.length - 1 - row];

  /** The row of the event with this seq, or -1. @param {number} seq */
  rowOf = (seq) => {
    let low = 0;
    let high = this.#events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#events[middle].seq < seq) low = middle + 1;
      else high = middle;
    }
    const row = this.#events.length - 1 - low;
    return this.#events[low]?.seq === seq && row < this.count ? row : -1;
  };

  /** The same events, in a tail that later ones do not change. */
  copy() {
    const copy = new Tail(this.#size);
    copy.#events = this.#events.slice(-this.#size);
    return copy;
  }
}
