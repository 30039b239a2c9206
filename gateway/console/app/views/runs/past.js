/**
 * The runs of one handle or of one parent, newest first: those of the state, and older ones from the store, page by
 * page. What happens changes the list at once.
 */

import { hasEnded } from "../../../greenroom.js";
import { html, signal, useEffect, useMemo } from "../../../vendor/ui.js";
import { Elapsed, HandleLink, Moment, Nothing, RunLink, Status } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { noteOutage } from "../../state/outage.js";
import { isPhone } from "../../state/phone.js";
import { onReturn } from "../../state/reading.js";
import { client, live } from "../../state/session.js";
import { filterOf, matcher, workOf } from "./filter.js";
import { removeDeleted, useRetention } from "./retention.js";
import { Rows } from "./rows.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {{ handle: string } | { parent: string }} Query */

const PAGE = 25;
const CHECKED = 500; // in a page that is read again

const COLUMNS = {
  Handle: (/** @type {RunRecord} */ run) => html`<${HandleLink} name=${run.handle} />`,
  Kind: (/** @type {RunRecord} */ run) => html`<${Text} value=${run.kind} />`,
};

/** The runs of a query. A view that uses them renders after each frame. @param {Query} query */
export function usePast(query) {
  const past = useMemo(() => new Past(query), Object.entries(query).flat());
  useEffect(() => {
    past.take({ reset: true, anew: false, runs: new Set() }); // frames since the first rendering are not lost
    past.more();
    const ends = [live.onFrame((frame) => past.take(frame)), onReturn(() => void (past.problem.peek() && past.more()))];
    return () => ends.forEach((end) => end());
  }, [past]);
  useRetention(() => past.check(), past);
  past.pages.value; // renders again after each page
  return past;
}

/** @param {{ past: Past, column: keyof typeof COLUMNS, label: string }} props `label`: the id of the heading */
export function PastRuns({ past, column, label }) {
  live.frame.value; // renders again after each change, although its properties stay the same
  const runs = past.shown();
  const problem = past.problem.value && html`<p class="error-text" role="alert"><${Text} value=${past.problem.value} /></p>`;
  const head = ["Run", "Job", column, "Status", "Created", "Time", "Reason or error"];
  if (runs.length === 0) return problem || html`<${Nothing}>${past.isRead ? "There are no runs yet." : "Loading…"}<//>`;
  const more = past.hasMore && html`<button class="quiet" onClick=${() => past.more()}>Older runs</button>`;
  if (isPhone.value) {
    return html`<ol class="cards" aria-labelledby=${label}>${runs.map((run) => html`<${Card} key=${run.id} run=${run} column=${column} />`)}</ol>
      ${problem} ${more}`;
  }
  return html`<div class="scroll" tabindex="0" role="group" aria-labelledby=${label}>
      <table>
        <thead><tr>${head.map((one) => html`<th key=${one} scope="col">${one}</th>`)}</tr></thead>
        <tbody>
          ${runs.map(
            (run) => html`<tr key=${run.id}>
              <td><${RunLink} id=${run.id} short /></td>
              <td><${Text} value=${workOf(run)} /></td>
              <td>${COLUMNS[column](run)}</td>
              <td><${Status} status=${run.status} /></td>
              <td><${Moment} at=${run.created_at} /></td>
              <td><${Elapsed} from=${run.started_at} to=${run.ended_at} /></td>
              <td class="why"><${Text} value=${why(run)} /></td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${problem} ${more}`;
}

/** A run on a phone. @param {{ run: RunRecord, column: keyof typeof COLUMNS }} props */
function Card({ run, column }) {
  return html`<li>
    <span><${RunLink} id=${run.id} short /></span>
    <span><${Status} status=${run.status} /></span>
    <span data-label="job"><${Text} value=${workOf(run)} /></span>
    <span data-label=${column.toLowerCase()}>${COLUMNS[column](run)}</span>
    <span data-label="created"><${Moment} at=${run.created_at} /></span>
    ${run.started_at !== null && html`<span data-label="for"><${Elapsed} from=${run.started_at} to=${run.ended_at} /></span>`}
    ${why(run) && html`<span class="why"><${Text} value=${why(run)} /></span>`}
  </li>`;
}

/** @param {RunRecord} run */
const why = (run) => run.error ?? run.reason ?? run.waiting_for ?? "";

class Past {
  /** How many pages were read. */
  pages = signal(0);
  /** Why the last page could not be read. */
  problem = signal("");
  #query;
  #rows;
  #size = 0;
  #over = false;
  #busy = false;
  /** How many stores there were: what was read from an earlier one is dropped. */
  #stores = 0;

  /** @param {Query} query */
  constructor(query) {
    this.#query = query;
    this.#rows = new Rows(matcher(filterOf(new URLSearchParams(query))));
    this.#rows.rebuild(live.runs);
  }

  /** Whether the newest runs are known. */
  get isRead() {
    return this.pages.value > 0 || live.hasAllEnded;
  }

  get hasMore() {
    return this.pages.value > 0 && (!this.#over || this.#rows.count > this.#size);
  }

  shown() {
    const size = Math.min(this.#size || PAGE, this.#rows.count);
    return Array.from({ length: size }, (_, index) => this.#rows.record(this.#rows.at(index), live.runs)).filter((run) => run !== undefined);
  }

  /** @param {import("../../state/live.js").Frame} frame */
  take({ reset, anew, runs }) {
    if (anew) {
      this.#rows.forget();
      this.#size = 0;
      this.pages.value = 0;
      this.#stores += 1;
    }
    if (reset) this.#rows.rebuild(live.runs);
    else this.#rows.update(runs, live.runs);
    this.#rows.add(this.shown().filter(hasEnded)); // they stay in the list after the state has dropped them
    if (anew) this.more();
  }

  /** Show another page. @returns {Promise<void>} */
  async more() {
    if (this.#busy) return;
    this.#busy = true;
    const store = this.#stores;
    const oldest = this.#size > 0 ? this.shown().at(-1)?.id : undefined;
    const found = await this.#read({ ...this.#query, limit: PAGE, ...(oldest && { before: oldest }) });
    this.#busy = false;
    if (store !== this.#stores) return this.more();
    if (!found) return;
    this.#over = found.length < PAGE;
    this.#rows.add(found.filter(({ id }) => !live.runs.has(id)));
    this.#size += PAGE;
    this.pages.value += 1;
  }

  /** @param {import("../../../greenroom.js").ListRunsOptions} options */
  async #read(options) {
    try {
      const found = await client().listRuns(options);
      this.problem.value = "";
      return found;
    } catch (error) {
      noteOutage(/** @type {Error} */ (error));
      this.problem.value = /** @type {Error} */ (error).message;
      return undefined;
    }
  }

  /** Remove the runs that the store has no more. */
  async check() {
    const store = this.#stores;
    const read = async (/** @type {string | undefined} */ before) => {
      const runs = await client().listRuns({ ...this.#query, limit: CHECKED, ...(before && { before }) });
      return { runs, over: runs.length < CHECKED };
    };
    await removeDeleted(this.#rows, read, () => store !== this.#stores);
    if (this.pages.peek() > 0) this.pages.value += 1;
  }
}
