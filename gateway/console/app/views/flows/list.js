/** The flows that the list shows, read page by page, and again when a flow changes. */

import { signal } from "../../../vendor/ui.js";
import { onReturn } from "../../state/reading.js";
import { client } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").FlowRow} FlowRow */
/** @typedef {import("../../../greenroom.js").VersionRow} VersionRow */
/** @typedef {{ flow: FlowRow, latest: VersionRow | null }} Row */

const PAGE = 20;

export class FlowList {
  /** @type {import("../../../vendor/ui.js").Signal<Row[]>} */
  rows = signal([]);
  /** @type {import("../../../vendor/ui.js").Signal<number | null>} */
  total = signal(null);
  problem = signal("");

  #wanted = PAGE;
  #reading = false;
  #again = false;
  #open = true;
  #stop = () => {};

  open() {
    this.#stop = onFlowChange(() => this.#read());
    this.#read();
  }

  close() {
    this.#open = false;
    this.#stop();
  }

  /** Show another page. */
  more() {
    this.#wanted += PAGE;
    this.#read();
  }

  /** Read what is shown. While a read is under way, the next one waits for it. */
  async #read() {
    if (this.#reading) return void (this.#again = true);
    this.#reading = true;
    do {
      this.#again = false;
      try {
        await this.#once();
        this.problem.value = "";
      } catch (error) {
        this.problem.value = String(/** @type {Error} */ (error).message);
      }
    } while (this.#again && this.#open);
    this.#reading = false;
  }

  async #once() {
    /** @type {Row[]} */
    const rows = [];
    for (let offset = 0; offset < this.#wanted; offset += PAGE) {
      const { flows, total } = await client().flows.list({ limit: PAGE, offset });
      for (const flow of flows) {
        const [latest = null] = await client().flows.versions(flow.id, { limit: 1 });
        rows.push({ flow, latest });
      }
      if (!this.#open) return;
      this.total.value = total;
    }
    this.rows.value = rows;
  }
}

/**
 * Call `changed` with the name of a flow that has changed, or with null when any flow can have. Returns a function that
 * ends that.
 * @param {(name: string | null) => void} changed
 */
export function onFlowChange(changed) {
  const ignoreEvents = client().onEvent(
    (event) => {
      if (event.type === "snapshot") changed(null);
      else if (event.type === "flow_changed") changed(event.name);
    },
    { types: ["flow_changed"] },
  );
  const ignoreReturn = onReturn(() => changed(null)); // also what could not be read
  return () => {
    ignoreEvents();
    ignoreReturn();
  };
}
