/**
 * The ids of what a person submits. Until a submission is answered, the same one has the same id, so that a repeat makes
 * no second run.
 */

import { drawId } from "../../greenroom.js";

export class Requests {
  /** @type {Map<string, string>} */
  #ids = new Map();

  /** The id for a submission. @param {string} submission what makes it a different one */
  idOf(submission) {
    const id = this.#ids.get(submission) ?? drawId();
    this.#ids.set(submission, id);
    return id;
  }

  /** The next submission is a new one, even if it looks the same. @param {string} submission */
  answered(submission) {
    this.#ids.delete(submission);
  }
}
