/**
 * The handles of which the state knows nothing any more: their runs are in the store, and tell their names and their last
 * outcomes. They are read newest first, page by page, until the list has enough, and on when a person asks for it.
 */

import { hasEnded } from "../../../greenroom.js";
import { live } from "../../state/session.js";
import { report } from "../../state/toasts.js";
import { PAGE, page } from "../runs/runs.js";
import { UNKNOWN } from "./status.js";
import { withOutcome } from "./status.js";

/** @typedef {import("../../../greenroom.js").HandleState} HandleState */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const MOST_PAGES = 10; // that are read without asking
const ENOUGH = 50; // more handles, then reading pauses

export class Older {
  busy = false;
  failed = false;
  /** The creation of the oldest run that was read. @type {number | null} */
  reached = null;
  /** The last outcome of each handle, with the id of the run that it is of. @type {Map<string, { run: string, status: HandleState["status"] }>} */
  #outcomes = new Map();
  /** @type {string | undefined} */
  #before;
  #over = false;
  #left = 0;
  #target = 0;
  #count;
  #changed;

  /** @param {() => number} count how many handles the list has now @param {() => void} changed */
  constructor(count, changed) {
    this.#count = count;
    this.#changed = changed;
    this.#add(live.runs.values());
  }

  /** Whether the list has all handles. */
  get complete() {
    return this.#over || live.hasAllEnded;
  }

  /** All names that are known, some of them twice. */
  *names() {
    yield* live.handleNames();
    yield* this.#outcomes.keys();
  }

  /** A handle with its last outcome, or null. @param {string} name @returns {HandleState | null} */
  handle(name) {
    const outcome = this.#outcomes.get(name);
    const handle = live.handle(name) ?? (outcome ? UNKNOWN : null);
    return handle?.status === "Idle" && outcome ? { ...handle, status: outcome.status } : handle;
  }

  /** Whether the last outcome of the handle is known. @param {string} name */
  isSettled(name) {
    return this.complete || Boolean(this.#outcomes.get(name)?.run);
  }

  /** @param {import("../../state/live.js").Frame} frame */
  take({ reset, runs }) {
    if (reset) {
      this.#outcomes.clear(); // the state can be that of another engine
      this.#before = undefined;
      this.#over = false;
      this.reached = null;
      this.#add(live.runs.values());
    } else {
      this.#add([...runs].map((id) => live.runs.get(id)).filter((run) => run !== undefined));
    }
  }

  /** Read until the list has enough more handles. A call during the reading extends it. */
  async more() {
    this.#left = MOST_PAGES;
    this.#target = this.#count() + ENOUGH;
    if (this.busy || this.complete) return;
    this.busy = true;
    this.failed = false;
    this.#changed();
    while (this.#left > 0 && !this.complete && !this.failed && this.#count() < this.#target) {
      this.#left -= 1;
      await this.#read();
    }
    this.busy = false;
    this.#changed();
  }

  async #read() {
    const before = this.#before;
    const found = await report(() => page({ limit: PAGE, ...(before && { before }) }));
    this.failed = found === undefined;
    if (!found || this.#before !== before) return; // a new state begins anew
    const last = found.runs.at(-1);
    this.#add(found.runs);
    this.#over = found.over;
    this.#before = found.reached ?? last?.id ?? before;
    this.reached = last?.created_at ?? this.reached;
  }

  /** @param {Iterable<RunRecord>} runs in any order */
  #add(runs) {
    for (const run of runs) {
      if (!hasEnded(run)) continue;
      const known = this.#outcomes.get(run.handle);
      if (run.place === null) {
        if (!known) this.#outcomes.set(run.handle, { run: "", status: "Idle" }); // it never had the handle
      } else if (!known || known.run < run.id) {
        this.#outcomes.set(run.handle, { run: run.id, status: withOutcome(UNKNOWN, [run]).status });
      }
    }
  }
}
