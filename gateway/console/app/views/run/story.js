/**
 * The events of one run: its history from the store, and then what happens, in order and without a gap. Renders at most
 * once per frame.
 */

import { signal } from "../../../vendor/ui.js";
import { client } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */

const MOST = 20_000; // the latest ones are kept

export class Story {
  /** @type {import("../../../vendor/ui.js").Signal<GreenroomEvent[]>} */
  events = signal([]);
  /** Whether the history has been read. */
  whole = signal(false);
  /** Why it could not be read. */
  problem = signal("");

  #id;
  /** @type {GreenroomEvent[]} */
  #list = [];
  #due = 0;
  #open = true;
  #stop = () => {};

  /** @param {string} id */
  constructor(id) {
    this.#id = id;
  }

  /** Read the history, and follow the run until `close`. */
  async open() {
    this.#stop = client().onEvent((event) => {
      if (event.type === "snapshot") this.#read();
      else this.#add([event]);
    }, { runs: [this.#id] });
    await this.#read();
  }

  close() {
    this.#open = false;
    this.#stop();
    cancelAnimationFrame(this.#due);
  }

  /** Read what is in the store after the last known event. */
  async #read() {
    try {
      this.#add(await client().history(this.#id, { after: this.whole.value ? (this.#list.at(-1)?.seq ?? 0) : 0 }));
      this.whole.value = true;
      this.problem.value = "";
    } catch (error) {
      this.problem.value = String(/** @type {Error} */ (error).message);
    }
  }

  /** @param {readonly GreenroomEvent[]} events */
  #add(events) {
    const own = events.filter((event) => "run" in event && event.run === this.#id);
    if (!this.#open || own.length === 0) return;
    const last = this.#list.at(-1)?.seq ?? 0;
    this.#list.push(...own);
    if (own[0].seq <= last) this.#list = sorted(this.#list);
    if (this.#list.length > MOST) this.#list.splice(0, this.#list.length - MOST);
    this.#due ||= requestAnimationFrame(() => {
      this.#due = 0;
      this.events.value = [...this.#list];
    });
  }
}

/** In order, each once: the history and the live events can overlap. @param {GreenroomEvent[]} events */
function sorted(events) {
  return [...new Map(events.map((event) => [event.seq, event])).values()].sort((one, other) => one.seq - other.seq);
}
