/** The list of runs: live, of any length, with its filter in the address. */

import { html, signal, useEffect, useMemo, useSignal } from "../../../vendor/ui.js";
import { Moment, Nothing } from "../../parts/basic.js";
import { listKeys } from "../../parts/listkeys.js";
import { News, atTop } from "../../parts/news.js";
import { Text, visible } from "../../parts/text.js";
import { VirtualList } from "../../parts/virtual.js";
import { found, go, to } from "../../state/address.js";
import { HeldList } from "../../state/heldlist.js";
import { useShortcuts } from "../../state/keys.js";
import { isPhone } from "../../state/phone.js";
import { isDrag } from "../../state/pointer.js";
import { onReturn } from "../../state/reading.js";
import { useResting } from "../../state/resting.js";
import { client, limits, live, may } from "../../state/session.js";
import { report } from "../../state/toasts.js";
import { NewRun } from "../new/new.js";
import { Bulk } from "./bulk.js";
import { COLUMNS, chosen } from "./columns.js";
import { endedOptions, filterOf, matcher, workOf } from "./filter.js";
import { Filters } from "./filters.js";
import { AllThatMatch } from "./matching.js";
import { removeDeleted, useRetention } from "./retention.js";
import { Rows } from "./rows.js";

const NEW = to("runs", [], { new: "1" });
const HEIGHT = 36;
const CARD = 120; // the height of a run on a phone
export const PAGE = 500;
const MOST_PAGES = 10; // that are read at once, if no run in them belongs to the list
const MOST_SOUGHT = 40; // that are read at once for a person who comes back to a row

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/** @param {{ query: URLSearchParams }} props */
export function Runs({ query }) {
  return query.has("new") ? html`<${NewRun} query=${query} />` : html`<${List} query=${query} />`;
}

/** @param {{ query: URLSearchParams }} props */
function List({ query }) {
  const filter = useMemo(() => filterOf(query), [String(query)]);
  const [rows, frame] = useMemo(() => /** @type {const} */ ([built(filter), live.frame.peek()]), [filter]);
  const changes = useSignal(0);
  const active = useSignal("");
  const selected = useMemo(() => signal(/** @type {Set<string>} */ (new Set())), [filter]); // of one filter: no other list shows it
  const { resting, handlers } = useResting();
  const list = useMemo(() => new HeldList(rows, (id) => rows.record(id, live.runs)), [rows]);
  const pages = useMemo(() => new Pages(filter, rows, () => (changes.value += 1)), [rows]);
  changes.value; // renders again

  useEffect(() => {
    if (live.frame.peek() !== frame) rows.rebuild(live.runs); // a frame came between the first rendering and now
    changes.value += 1;
    return live.onFrame(({ reset, anew, runs }) => {
      if (anew) {
        list.release();
        rows.forget();
        selected.value = new Set();
      }
      if (reset) {
        rows.rebuild(live.runs);
        pages.restart();
        list.refresh(list.keys());
      } else {
        pages.readAgain(rows.update(runs, live.runs));
        list.refresh(runs);
      }
      changes.value += 1;
    });
  }, [rows]);
  useEffect(() => onReturn(() => void (pages.failed && pages.more())), [pages]);
  useEffect(() => pages.seek(/** @type {{ key: string } | null} */ (found())?.key), []);
  useRetention(() => pages.check(), pages);
  useShortcuts(() => keys(list, active, selected), [list]);

  const lists = (/** @type {string} */ id) => rows.indexOf(id) >= 0; // also while the row of a run that left is held
  const picked = [...selected.value].filter(lists).map(list.value).filter((run) => run !== undefined);
  list.hold(resting.value || selected.value.size > 0 || list.indexOf(active.value) >= 0);
  const show = () => {
    list.release();
    active.value = "";
    changes.value += 1;
  };
  const columns = COLUMNS.filter(({ name }) => chosen.value.has(name));
  const grid = { gridTemplateColumns: `2.25rem ${columns.map(({ width }) => width).join(" ")}` };
  useEffect(() => rows.keep(picked)); // a selected run does not leave the list because others have ended
  const deselect = (/** @type {Iterable<string>} */ ids = selected.value) => (selected.value = without(selected.value, ids));
  const reachable = list.held ? list.keys().filter(lists).length : list.count;
  const all = reachable > 0 && picked.length === reachable;
  const head = html`<div class="list-head row" role="row" aria-rowindex="1" style=${grid}>
    <span role="columnheader">
      <input type="checkbox" aria-label="Select all" checked=${all} onChange=${() => (selected.value = new Set(all ? [] : list.keys()))} />
    </span>
    ${columns.map(({ name, title }) => html`<span key=${name} role="columnheader">${title}</span>`)}
  </div>`;

  const rest = filter.problems.length === 0 && restOf(pages, rows.count, query.size > 0);
  return html`<section class="runs" aria-labelledby="runs-title">
    <div class="title">
      <h1 id="runs-title">Runs</h1>
      <span class="faint number" aria-live="off">${rows.count.toLocaleString()}${pages.complete ? "" : "+"}</span>
      ${pages.seeks && html`<span class="faint" role="status">Reading the rows that you left…</span>`}
      <${News} count=${list.added} what="run" show=${() => atTop(show)} />
      <span class="spread"></span>
      <${AllThatMatch} filter=${filter} query=${String(query)} />
      ${may("operator") && html`<a class="button primary" href=${NEW}>New run</a>`}
    </div>
    <${Filters} query=${query} />
    <${Bulk} runs=${picked} selected=${selected.value.size} lists=${lists} deselect=${deselect} />
    ${filter.problems.length > 0 &&
    html`<p class="error-text" role="alert">No run is listed, because the filter is unknown: <${Text} value=${filter.problems.join("; ")} />.</p>`}
    ${rows.count === 0 && rest}
    <${VirtualList}
      label="Runs"
      count=${list.count}
      height=${isPhone.value ? CARD : HEIGHT}
      keyOf=${list.at}
      indexOf=${list.indexOf}
      active=${list.indexOf(active.value)}
      head=${head}
      handlers=${handlers}
      end=${list.held ? list.count : pages.end}
      onEnd=${(/** @type {boolean} */ scrolled) => (scrolled || !pages.stopped) && pages.more()}
      row=${(/** @type {number} */ index) => {
        const run = list.value(list.at(index));
        return run && html`<${Row} run=${run} columns=${columns} grid=${grid} active=${active} selected=${selected} />`;
      }}
    />
    ${rows.count > 0 && rest}
  </section>`;
}

/** What the list lacks, if anything. @param {Pages} pages @param {number} count @param {boolean} filtered */
function restOf(pages, count, filtered) {
  if (count === 0 && pages.complete) {
    const none = limits.value ? "There are no runs that your token may see." : "There are no runs yet.";
    return html`<${Nothing}>${filtered ? "No run matches the filter." : none}<//>`;
  }
  if (count === 0 && (pages.busy || !pages.stopped)) return html`<${Nothing}>None so far. Reading older runs…<//>`;
  if (pages.complete || pages.busy || !pages.stopped) return null;
  return html`<p class="rest" role="status">
    ${pages.failed ? "Older runs could not be read." : count === 0 ? "None so far." : "No more so far."}${" "}
    ${pages.reached !== null && html`Read back to <${Moment} at=${pages.reached} />.`}
    <button onClick=${() => pages.more()}>Read on</button>
  </p>`;
}

/** @param {{ run: RunRecord, columns: import("./columns.js").Column[], grid: any, active: any, selected: any }} props */
function Row({ run, columns, grid, active, selected }) {
  /** @param {any} event */
  const open = (event) => {
    if (isDrag(event)) return;
    active.value = run.id;
    if (!event.target.closest("a, input, label")) go(to("runs", [run.id]));
  };
  const name = `run …${run.id.slice(-8)}: ${visible(workOf(run))}`;
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
    ${columns.map(({ name, label, cell }) => html`<span key=${name} role="gridcell" class=${`cell-${name}`} data-label=${label}>${cell(run)}</span>`)}
  </div>`;
}

/** @param {import("./filter.js").RunFilter} filter */
function built(filter) {
  const rows = new Rows(matcher(filter));
  rows.rebuild(live.runs);
  return rows;
}

/** @param {Set<string>} all @param {Iterable<string>} some */
function without(all, some) {
  const left = new Set(all);
  for (const one of some) left.delete(one);
  return left;
}

/** @param {any} selected @param {string} id */
function flip(selected, id) {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}

/** @param {HeldList<RunRecord>} list @param {any} active @param {any} selected */
function keys(list, active, selected) {
  return [
    ...listKeys("run", list, active, (id) => go(to("runs", [id]))),
    ...(may("operator") ? [{ key: "n", what: "New run", run: () => void go(NEW) }] : []),
    { key: "x", what: "Select the run", run: () => list.indexOf(active.value) >= 0 && flip(selected, active.value) },
  ];
}

/** Ended runs that the state does not have any more: the store's pages, as the person scrolls to the end. */
class Pages {
  busy = false;
  /** Whether the last reading made the list no longer, although there are older runs. */
  stopped = false;
  failed = false;
  /** The creation of the oldest run that was read. @type {number | null} */
  reached = null;
  #options;
  #rows;
  #changed;
  /** The list has all runs down to this one. @type {string | undefined} */
  #before;
  #over = false;
  /** The run that a person was at who comes back to the list. @type {string | undefined} */
  #sought;
  /** How many states there were: what was read for an earlier one is dropped. */
  #states = 0;

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

  /** The row from which on the list can lack runs. */
  get end() {
    return this.complete || this.#before === undefined ? this.#rows.count : this.#rows.below(this.#before);
  }

  /** Whether the list can still get the run that it seeks. */
  get seeks() {
    const id = this.#sought;
    if (id === undefined || this.complete || this.#rows.indexOf(id) >= 0) return false;
    return this.#before === undefined || this.#before > id;
  }

  /** Read until the list has this run. @param {string | undefined} id */
  seek(id) {
    this.#sought = id;
    if (this.seeks) this.more();
  }

  /** The state is a new one: begin with the newest page. */
  restart() {
    this.#states += 1;
    this.#before = undefined;
    this.reached = null;
    this.#over = this.stopped = false;
  }

  /** The list lost runs down from this one: begin there. @param {string | undefined} lost */
  readAgain(lost) {
    if (lost === undefined || (!this.#over && (this.#before === undefined || this.#before > lost))) return;
    this.#before = this.#rows.above(lost);
    this.#over = this.stopped = false;
  }

  /** Read pages until the list is longer, or there are no more. @returns {Promise<void>} */
  async more() {
    if (this.busy || this.complete) return;
    this.busy = true;
    this.#changed();
    const states = this.#states;
    const before = this.#rows.count;
    this.failed = false;
    for (let page = 0; page < (this.seeks ? MOST_SOUGHT : MOST_PAGES) && !this.#over && !this.failed; page++) {
      if (this.#rows.count > before && !this.seeks) break;
      await this.#read();
    }
    this.#sought = undefined;
    this.stopped = this.failed || (!this.#over && this.#rows.count === before);
    this.busy = false;
    if (states !== this.#states) return this.more();
    this.#changed();
  }

  /** Remove the runs that the store has no more. */
  async check() {
    const states = this.#states;
    const read = (/** @type {string | undefined} */ before) => page({ ...this.#options, limit: PAGE, ...(before && { before }) });
    await removeDeleted(this.#rows, read, () => states !== this.#states);
    this.#changed();
  }

  async #read() {
    const states = this.#states;
    const before = this.#before;
    const found = await report(() => page({ ...this.#options, limit: PAGE, ...(before && { before }) }));
    this.failed = found === undefined;
    if (!found || states !== this.#states) return;
    const last = found.runs.at(-1);
    this.#rows.add(found.runs.filter(({ id }) => !live.runs.has(id)));
    if (this.#before !== before) return; // meanwhile the list lost newer runs
    this.#over = found.over;
    this.#before = found.reached ?? last?.id ?? before;
    this.reached = last?.created_at ?? this.reached;
  }
}

/**
 * A page of the store. The engine refuses to search through too many runs that do not match, and says how far it got.
 * @param {import("../../../greenroom.js").ListRunsOptions} options
 * @returns {Promise<import("./retention.js").Page>}
 */
export async function page(options) {
  try {
    const runs = await client().listRuns(options);
    return { runs, over: runs.length < PAGE };
  } catch (error) {
    const { before: reached, found: limit } = /** @type {any} */ (error).details ?? {};
    if (reached === undefined) throw error;
    return { runs: limit > 0 ? await client().listRuns({ ...options, limit }) : [], over: false, reached };
  }
}
