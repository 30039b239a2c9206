/** The list of runs: live, of any length, with its filter in the address. */

import { html, useEffect, useMemo, useSignal } from "../../../vendor/ui.js";
import { Nothing } from "../../parts/basic.js";
import { listKeys } from "../../parts/listkeys.js";
import { Text, visible } from "../../parts/text.js";
import { VirtualList } from "../../parts/virtual.js";
import { go, to } from "../../state/address.js";
import { addShortcuts } from "../../state/keys.js";
import { isPhone } from "../../state/phone.js";
import { client, limits, live } from "../../state/session.js";
import { report } from "../../state/toasts.js";
import { Bulk } from "./bulk.js";
import { COLUMNS, chosen } from "./columns.js";
import { endedOptions, filterOf, matcher } from "./filter.js";
import { Filters } from "./filters.js";
import { Rows } from "./rows.js";

const HEIGHT = 36;
const CARD = 92; // the height of a run on a phone
const PAGE = 500;
const MOST_PAGES = 10; // that are read at once, if no run in them belongs to the list

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/** @param {{ query: URLSearchParams }} props */
export function Runs({ query }) {
  const filter = useMemo(() => filterOf(query), [String(query)]);
  const [rows, frame] = useMemo(() => /** @type {const} */ ([built(filter), live.frame.peek()]), [filter]);
  const changes = useSignal(0);
  const active = useSignal("");
  const selected = useSignal(/** @type {Set<string>} */ (new Set()));
  const pages = useMemo(() => new Pages(filter, rows, () => (changes.value += 1)), [rows]);
  changes.value; // renders again

  useEffect(() => {
    if (live.frame.peek() !== frame) rows.rebuild(live.runs); // a frame came between the first rendering and now
    changes.value += 1;
    return live.onFrame(({ reset, runs }) => {
      if (reset) rows.rebuild(live.runs);
      else rows.update(runs, live.runs);
      changes.value += 1;
    });
  }, [rows]);
  useEffect(() => addShortcuts(keys(rows, active, selected)), [rows]);

  const record = (/** @type {string} */ id) => rows.record(id, live.runs);
  const columns = COLUMNS.filter(({ name }) => chosen.value.has(name));
  const grid = { gridTemplateColumns: `2.25rem ${columns.map(({ width }) => width).join(" ")}` };
  const picked = [...selected.value].map(record).filter((run) => run !== undefined);
  const all = rows.count > 0 && picked.length === rows.count;
  const head = html`<div class="list-head row" role="row" aria-rowindex="1" style=${grid}>
    <span role="columnheader">
      <input type="checkbox" aria-label="Select all" checked=${all} onChange=${() => (selected.value = new Set(all ? [] : rows.ids()))} />
    </span>
    ${columns.map(({ name, title }) => html`<span key=${name} role="columnheader">${title}</span>`)}
  </div>`;

  return html`<section class="runs" aria-labelledby="runs-title">
    <div class="title">
      <h1 id="runs-title">Runs</h1>
      <span class="faint number" aria-live="off">${rows.count.toLocaleString()}${pages.complete ? "" : "+"}</span>
    </div>
    <${Filters} query=${query} />
    <${Bulk} runs=${picked} clear=${() => (selected.value = new Set())} />
    ${filter.problems.length > 0 &&
    html`<p class="error-text" role="alert">No run is listed, because the filter is unknown: <${Text} value=${filter.problems.join("; ")} />.</p>`}
    ${rows.count === 0 && filter.problems.length === 0 && html`<${Nothing}>${query.size > 0 ? "No run matches the filter." : limits.value ? "There are no runs that your token may see." : "There are no runs yet."}<//>`}
    <${VirtualList}
      label="Runs"
      count=${rows.count}
      height=${isPhone.value ? CARD : HEIGHT}
      keyOf=${rows.at}
      indexOf=${rows.indexOf}
      active=${rows.indexOf(active.value)}
      head=${head}
      onEnd=${() => pages.more()}
      row=${(/** @type {number} */ index) => {
        const run = record(rows.at(index));
        return run && html`<${Row} run=${run} columns=${columns} grid=${grid} active=${active} selected=${selected} />`;
      }}
    />
  </section>`;
}

/** @param {{ run: RunRecord, columns: import("./columns.js").Column[], grid: any, active: any, selected: any }} props */
function Row({ run, columns, grid, active, selected }) {
  /** @param {any} event */
  const open = (event) => {
    active.value = run.id;
    if (!event.target.closest("a, input, label")) go(to("runs", [run.id]));
  };
  const name = `run …${run.id.slice(-8)}: ${visible(run.job)}`;
  return html`<div class="cells" style=${grid} onClick=${open}>
    <span role="gridcell">
      <a class="row-link" href=${to("runs", [run.id])} aria-label=${name}></a>
      <input
        type="checkbox"
        tabindex="-1"
        aria-label=${`Select ${name}`}
        checked=${selected.value.has(run.id)}
        onChange=${() => flip(selected, run.id)}
      />
    </span>
    ${columns.map(({ name, cell }) => html`<span key=${name} role="gridcell" class=${`cell-${name}`}>${cell(run)}</span>`)}
  </div>`;
}

/** @param {import("./filter.js").RunFilter} filter */
function built(filter) {
  const rows = new Rows(matcher(filter));
  rows.rebuild(live.runs);
  return rows;
}

/** @param {any} selected @param {string} id */
function flip(selected, id) {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}

/** @param {Rows} rows @param {any} active @param {any} selected */
function keys(rows, active, selected) {
  return [
    ...listKeys("run", rows, active, (id) => go(to("runs", [id]))),
    { key: "x", what: "Select the run", run: () => rows.indexOf(active.value) >= 0 && flip(selected, active.value) },
  ];
}

/** Ended runs that the state does not have any more: the store's pages, as the person scrolls to the end. */
class Pages {
  #options;
  #rows;
  #changed;
  /** @type {string | undefined} */
  #before;
  #busy = false;
  #over = false;

  /** @param {import("./filter.js").RunFilter} filter @param {Rows} rows @param {() => void} changed */
  constructor(filter, rows, changed) {
    this.#options = endedOptions(filter);
    this.#rows = rows;
    this.#changed = changed;
  }

  /** Whether the list has all runs that match. */
  get complete() {
    return this.#over || this.#options === null || live.hasAllEnded;
  }

  /** Read pages until the list is longer, or there are no more. */
  async more() {
    if (this.#busy || this.#options === null) return;
    this.#busy = true;
    const before = this.#rows.count;
    for (let page = 0; page < MOST_PAGES && !this.#over && this.#rows.count === before; page++) await this.#read();
    this.#busy = false;
    if (this.#rows.count > before || this.#over) this.#changed();
  }

  async #read() {
    const options = { ...this.#options, limit: PAGE, ...(this.#before && { before: this.#before }) };
    const found = await report(() => client().listRuns(options));
    this.#over = found === undefined || found.length < PAGE;
    if (!found) return;
    this.#before = found.at(-1)?.id ?? this.#before;
    this.#rows.add(found.filter(({ id }) => !live.runs.has(id)));
  }
}
