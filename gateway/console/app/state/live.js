/**
 * The client's fold as signals. Whatever number of events arrives, the signals change at most once per frame; while the
 * page is hidden, once per second.
 *
 * Signals are for what is small. Views of many runs listen to `onFrame`, which names the runs that changed, and read
 * their records from `runs`.
 */

import { KEPT_ENDED_RUNS } from "../../greenroom.js";
import { batch, computed, signal } from "../../vendor/ui.js";
import { now } from "./clock.js";
import { Rates } from "./rates.js";
import { survey } from "./survey.js";

/** @typedef {import("../../greenroom.js").Client} Client */
/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("../../greenroom.js").Counts} Counts */

/**
 * @typedef {object} Frame
 * @property {boolean} reset whether the state is a new one, so that any run can have changed
 * @property {boolean} anew whether the store is another one: it has nothing of what was read before
 * @property {Set<string>} runs the ids of the runs that changed
 */

const MOST_CHANGES = 50_000; // above that, a view reads everything again
const HIDDEN = 1_000;

export class Live {
  /** @type {import("../../vendor/ui.js").Signal<Counts | null>} */
  counts = signal(null);
  /** @type {import("../../vendor/ui.js").Signal<[string, import("../../greenroom.js").InterruptState][]>} */
  interrupts = signal([]);
  /** @type {import("../../vendor/ui.js").Signal<[string, import("../../greenroom.js").ExecutorState][]>} */
  executors = signal([]);
  /** @type {import("../../vendor/ui.js").Signal<[string, import("../../greenroom.js").ScheduleRecord][]>} */
  schedules = signal([]);
  /** The number of the frame: what reads it runs again after each change. */
  frame = signal(0);
  rates = new Rates();
  /** What the records of all runs tell, computed once per second. */
  survey = computed(() => {
    now.value;
    this.#resets.value;
    const asked = new Set(this.interrupts.peek().map(([, { run }]) => run));
    return survey(this.runs, asked, !this.#client?.within);
  });

  /** @type {Client | null} */
  #client = null;
  /** @type {Frame} */
  #next = { reset: true, anew: false, runs: new Set() };
  #epoch = "";
  /** @type {Set<(frame: Frame) => void>} */
  #listeners = new Set();
  #due = false;
  #resets = signal(0);

  /** Show the state of this client. @param {Client} client */
  follow(client) {
    this.#client = client;
    client.onEvent((event) => this.#take(client, event));
    this.#reset();
    this.#show();
  }

  /** The records of all pending runs, and of the runs that ended last. @returns {ReadonlyMap<string, RunRecord>} */
  get runs() {
    return this.#client?.state.runs ?? new Map();
  }

  /** Whether the state contains all ended runs; it keeps only those that ended last. */
  get hasAllEnded() {
    const pending = Object.values(this.counts.value?.runs ?? {}).reduce((sum, count) => sum + count, 0);
    return this.runs.size - pending < KEPT_ENDED_RUNS;
  }

  /** The rules of a lane. @param {string} lane @returns {import("../../greenroom.js").LaneRules} */
  rules(lane) {
    return this.#client?.state.rules(lane) ?? {};
  }

  /** A handle as in a snapshot, or null. @param {string} name */
  handle(name) {
    return this.#client?.state.handle(name) ?? null;
  }

  /** The names of the handles that the state has. @returns {Iterable<string>} */
  handleNames() {
    return this.#client?.state.handleNames() ?? [];
  }

  /** Call `listener` after each frame. Returns a function that removes it. @param {(frame: Frame) => void} listener */
  onFrame(listener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** @param {Client} client @param {import("../../greenroom.js").StreamItem} event */
  #take(client, event) {
    if (client !== this.#client) return;
    if (event.type === "snapshot") {
      this.#reset();
    } else {
      this.rates.take(event, client.state.runs);
      if ("run" in event && typeof event.run === "string") this.#next.runs.add(event.run);
      if (this.#next.runs.size > MOST_CHANGES) this.#next = { ...this.#next, reset: true, runs: new Set() };
    }
    this.#plan();
  }

  #reset() {
    this.#resets.value += 1;
    const epoch = this.#client?.state.epoch ?? "";
    this.#next = { reset: true, anew: this.#next.anew || epoch !== this.#epoch, runs: new Set() };
    this.#epoch = epoch;
    this.rates.restart(this.runs.values());
  }

  #plan() {
    if (this.#due) return;
    this.#due = true;
    if (document.hidden) setTimeout(() => this.#show(), HIDDEN);
    else requestAnimationFrame(() => this.#show());
  }

  #show() {
    this.#due = false;
    const state = this.#client?.state;
    if (!state) return;
    const frame = this.#next;
    this.#next = { reset: false, anew: false, runs: new Set() };
    batch(() => {
      this.counts.value = state.counts();
      this.interrupts.value = entries(state.interrupts, this.interrupts.peek());
      this.executors.value = entries(state.executors, this.executors.peek());
      this.schedules.value = entries(state.schedules, this.schedules.peek());
      for (const listener of [...this.#listeners]) listener(frame);
      this.frame.value += 1;
    });
  }
}

/**
 * The entries of a map; the known array if they are the same, so that views render only after a change.
 * @template T
 * @param {ReadonlyMap<string, T>} map
 * @param {[string, T][]} known
 * @returns {[string, T][]}
 */
function entries(map, known) {
  const found = [...map];
  const same = found.length === known.length && found.every(([key, value], index) => known[index][0] === key && known[index][1] === value);
  return same ? known : found;
}
