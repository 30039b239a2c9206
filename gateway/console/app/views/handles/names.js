/** The names of the handles in the list, in alphabetical order. Pure. */

/** @typedef {import("../../../greenroom.js").HandleState} HandleState */

/** Sorting 100,000 names takes long, so they are sorted only when there are others. */
export class Names {
  /** @type {string[]} */
  #names = [];
  /** @type {Map<string, number>} */
  #rows = new Map();

  get count() {
    return this.#names.length;
  }

  /** @param {number} index */
  at = (index) => this.#names[index];

  /** The row of a name, or -1. @param {string} name */
  indexOf = (name) => this.#rows.get(name) ?? -1;

  /** The first row whose name comes after this one. @param {string} name */
  below = (name) => {
    const row = this.#names.findIndex((one) => one > name);
    return row < 0 ? this.#names.length : row;
  };

  /** @param {Iterable<string>} names some can be there twice */
  update(names) {
    const found = [...new Set(names)];
    if (found.length === this.#names.length && found.every((name) => this.#rows.has(name))) return;
    this.#names = found.sort();
    this.#rows = new Map(found.map((name, index) => [name, index]));
  }
}

/**
 * The names that contain the text and whose handles have one of the statuses; none means any.
 * @param {Iterable<string>} names
 * @param {string} text
 * @param {string[]} statuses
 * @param {(name: string) => HandleState | null} handle
 */
export function* matching(names, text, statuses, handle) {
  const wanted = text.toLowerCase();
  for (const name of names) {
    if (wanted && !name.toLowerCase().includes(wanted)) continue;
    if (statuses.length === 0 || statuses.includes(handle(name)?.status ?? "")) yield name;
  }
}
