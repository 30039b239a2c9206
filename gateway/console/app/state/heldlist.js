/**
 * A list whose rows stay in place while a person is at them: new rows are only counted, and rows that left the list stay
 * as they were. Rows that come below the last one move nothing, and are appended. Pure.
 */

/** @typedef {import("../parts/listkeys.js").Listed} Listed */

/** @template T */
export class HeldList {
  #list;
  #read;
  /** The rows while they are held. @type {string[] | null} */
  #keys = null;
  /** @type {Map<string, number>} */
  #places = new Map();
  /** @type {Map<string, T>} */
  #values = new Map();

  /**
   * @param {Listed} list
   * @param {(key: string) => T | undefined} [read] what a row shows; a row that left the list keeps the last one
   */
  constructor(list, read = () => undefined) {
    this.#list = list;
    this.#read = read;
  }

  get count() {
    return this.#keys?.length ?? this.#list.count;
  }

  /** Whether the rows are held now. */
  get held() {
    return this.#keys !== null;
  }

  /** How many rows the list has that are not shown. */
  get added() {
    if (this.#keys === null) return 0;
    let added = 0;
    for (let index = 0; index < this.#list.count; index++) if (!this.#places.has(this.#list.at(index))) added += 1;
    return added;
  }

  /** @param {number} index */
  at = (index) => (this.#keys === null ? this.#list.at(index) : this.#keys[index]);

  /** The row of a key, or -1. @param {string} key */
  indexOf = (key) => (this.#keys === null ? this.#list.indexOf(key) : (this.#places.get(key) ?? -1));

  /** The first row below a key. @param {string} key */
  below = (key) => (this.#keys === null ? this.#list.below(key) : (this.#places.get(key) ?? -1) + 1);

  /** What a row shows. @param {string} key @returns {T | undefined} */
  value = (key) => this.#read(key) ?? this.#values.get(key);

  /** All keys, from the first row on. */
  keys() {
    return this.#keys ?? Array.from({ length: this.#list.count }, (_, index) => this.#list.at(index));
  }

  /** Hold the rows, or follow the list. An empty list has nothing to hold. @param {boolean} still */
  hold(still) {
    if (!still) return this.release();
    if (this.#keys === null && this.#list.count > 0) this.#keys = [];
    if (this.#keys !== null) this.#extend(this.#keys);
  }

  /** Follow the list. */
  release() {
    this.#keys = null;
    this.#places.clear();
    this.#values.clear();
  }

  /** Keep what these rows show now, for the time after they left the list. @param {Iterable<string>} changed */
  refresh(changed) {
    for (const key of changed) if (this.#places.has(key)) this.#keep(key);
  }

  /** Append the rows below the last one that the list still has. @param {string[]} keys */
  #extend(keys) {
    let last = keys.length - 1;
    while (last >= 0 && this.#list.indexOf(keys[last]) < 0) last -= 1;
    if (last < 0 && keys.length > 0) return; // it has none of them: all that it has came later
    for (let index = last < 0 ? 0 : this.#list.indexOf(keys[last]) + 1; index < this.#list.count; index++) {
      const key = this.#list.at(index);
      if (this.#places.has(key)) continue;
      this.#places.set(key, keys.length);
      keys.push(key);
      this.#keep(key);
    }
  }

  /** @param {string} key */
  #keep(key) {
    const value = this.#read(key);
    if (value !== undefined) this.#values.set(key, value);
  }
}
