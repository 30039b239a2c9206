/**
 * The events of one run: the latest ones of its history from the store, and then what happens, in order and without a
 * gap. Older ones are read page by page when a person asks for them. Renders at most once per frame.
 */

import { signal } from "../../../vendor/ui.js";
import { onReturn } from "../../state/reading.js";
import { client } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */

const PAGE = 500;
const FIRST = 20; // events of the begin, which tell how a run with a long history started
const MOST = 20_000; // of those that arrive live; the latest ones are kept

export class Story {
  /** @type {import("../../../vendor/ui.js").Signal<GreenroomEvent[]>} */
  events = signal([]);
  /** Whether the store has events before these. */
  hasEarlier = signal(false);
  /** The first events, which `events` can lack; none until they are read. @type {import("../../../vendor/ui.js").Signal<GreenroomEvent[]>} */
  first = signal([]);
  /** Why the history could not be read. */
  problem = signal("");

  #id;
  /** @type {GreenroomEvent[]} */
  #list = [];
  #most = MOST;
  #isRead = false;
  #due = 0;
  #open = true;
  #stop = () => {};

  /** @param {string} id */
  constructor(id) {
    this.#id = id;
  }

  /** Read the history, and follow the run until `close`. */
  async open() {
    const ignoreEvents = client().onEvent((event) => {
      if (event.type === "snapshot") this.#read();
      else this.#add([event]);
    }, { runs: [this.#id] });
    const ignoreConnection = onReturn(() => void (this.problem.peek() && this.#read()));
    this.#stop = () => {
      ignoreEvents();
      ignoreConnection();
    };
    await this.#read();
  }

  close() {
    this.#open = false;
    this.#stop();
    cancelAnimationFrame(this.#due);
  }

  /** Read the page before the first known event. */
  async earlier() {
    const [oldest] = this.#list;
    const found = oldest && (await this.#ask({ before: oldest.seq, limit: PAGE }));
    if (!found) return;
    this.#most += found.length;
    this.#add(found);
    this.hasEarlier.value = found.length === PAGE;
  }

  /** Read the end of the history; later, what is in the store after the last known event. */
  async #read() {
    if (this.#isRead) {
      this.#add((await this.#ask({ after: this.#list.at(-1)?.seq ?? 0 })) ?? []);
      return;
    }
    const found = await this.#ask({ before: client().state.seq + 1, limit: PAGE });
    if (!found) return;
    this.#isRead = true;
    this.#add(found);
    this.hasEarlier.value = found.length === PAGE;
    this.first.value = (this.hasEarlier.peek() ? await this.#ask({ limit: FIRST }) : found.slice(0, FIRST)) ?? [];
  }

  /** @param {import("../../../greenroom.js").HistoryOptions} options */
  async #ask(options) {
    try {
      const found = await client().history(this.#id, options);
      this.problem.value = "";
      return found;
    } catch (error) {
      this.problem.value = String(/** @type {Error} */ (error).message);
      return undefined;
    }
  }

  /** @param {readonly GreenroomEvent[]} events */
  #add(events) {
    const own = events.filter((event) => "run" in event && event.run === this.#id);
    if (!this.#open || own.length === 0) return;
    const last = this.#list.at(-1)?.seq ?? 0;
    this.#list.push(...own);
    if (own[0].seq <= last) this.#list = sorted(this.#list);
    if (this.#list.length > this.#most) {
      this.#list.splice(0, this.#list.length - this.#most);
      this.hasEarlier.value = true;
    }
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
