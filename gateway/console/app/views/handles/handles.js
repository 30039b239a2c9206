/** The list of handles: live, of any length, with its search in the address. */

import { html, useEffect, useMemo, useSignal } from "../../../vendor/ui.js";
import { HandleLink, Moment, Nothing, RunLink } from "../../parts/basic.js";
import { FilterForm } from "../../parts/filterform.js";
import { News, atTop } from "../../parts/news.js";
import { listKeys } from "../../parts/listkeys.js";
import { Text } from "../../parts/text.js";
import { VirtualList } from "../../parts/virtual.js";
import { go, to } from "../../state/address.js";
import { HeldList } from "../../state/heldlist.js";
import { useShortcuts } from "../../state/keys.js";
import { isPhone } from "../../state/phone.js";
import { isDrag } from "../../state/pointer.js";
import { onReturn } from "../../state/reading.js";
import { useResting } from "../../state/resting.js";
import { limits, live } from "../../state/session.js";
import { Names, matching } from "./names.js";
import { Older } from "./older.js";
import { HandleStatus, STATUSES, UNKNOWN } from "./status.js";

/** @typedef {import("../../../greenroom.js").HandleState} HandleState */

const HEIGHT = 36;
const CARD = 80; // the height of a handle on a phone
const FEW = 50; // handles: with fewer, a search goes on in the store at once
const GRID = { gridTemplateColumns: "minmax(12rem, 2fr) minmax(11rem, 1fr) 8rem 6rem 6rem" };

/** @param {{ query: URLSearchParams }} props */
export function Handles({ query }) {
  const active = useSignal("");
  const changes = useSignal(0);
  const text = query.get("text") ?? "";
  const statuses = query.getAll("status");
  const problems = problemsOf(query);
  const { names, older, shown } = useMemo(() => listed(() => (changes.value += 1)), []);
  const { resting, handlers } = useResting();
  const list = useMemo(() => new HeldList(names), [names, String(query)]);
  useShortcuts(() => listKeys("handle", list, active, (name) => go(to("handles", [name]))), [list]);
  changes.value; // renders again
  live.frame.value; // and after each change
  useEffect(() => {
    older.take({ reset: false, anew: false, runs: new Set(live.runs.keys()) }); // frames since the first rendering are not lost
    return live.onFrame((frame) => older.take(frame));
  }, [older]);
  useEffect(() => onReturn(() => void (older.failed && older.more())), [older]);
  shown.filter = problems.length > 0 ? null : { text, statuses };
  shown.update();
  list.hold(resting.value || list.indexOf(active.value) >= 0);
  const show = () => {
    list.release();
    active.value = "";
    changes.value += 1;
  };
  useEffect(() => {
    if (query.size > 0 && problems.length === 0 && names.count < FEW) older.more();
  }, [String(query)]);

  /** @param {Record<string, string | string[] | null>} change */
  const set = (change) => go(to("handles", [], { text, status: statuses, ...change }), { replace: true });
  const head = html`<div class="list-head row" role="row" aria-rowindex="1" style=${GRID}>
    ${["Handle", "Status", "Active run", "Waiting", "Draft"].map((title) => html`<span key=${title} role="columnheader">${title}</span>`)}
  </div>`;
  return html`<section class="runs" aria-labelledby="handles-title">
    <div class="title">
      <h1 id="handles-title">Handles</h1>
      <span class="faint number">${names.count.toLocaleString()}${older.complete ? "" : "+"}</span>
      <${News} count=${list.added} what="handle" show=${() => atTop(show)} />
    </div>
    <${FilterForm} count=${query.size}>
      <div class="chips" role="group" aria-label="Status">
        ${STATUSES.map((status) => html`<${Chip} key=${status} status=${status} chosen=${statuses} set=${set} />`)}
      </div>
      <label class="field wide">
        <span>name</span>
        <input type="search" value=${text} onInput=${(/** @type {any} */ event) => set({ text: event.currentTarget.value })} />
      </label>
    <//>
    ${problems.length > 0 &&
    html`<p class="error-text" role="alert">No handle is listed, because the filter is unknown: <${Text} value=${problems.join("; ")} />.</p>`}
    ${problems.length === 0 && names.count === 0 && html`<${Nothing}>${noneOf(older, query.size > 0)}<//>`}
    <${VirtualList}
      label="Handles"
      count=${list.count}
      height=${isPhone.value ? CARD : HEIGHT}
      keyOf=${list.at}
      indexOf=${list.indexOf}
      active=${list.indexOf(active.value)}
      head=${head}
      handlers=${handlers}
      onEnd=${(/** @type {boolean} */ scrolled) => scrolled && problems.length === 0 && older.more()}
      row=${(/** @type {number} */ index) => {
        const name = list.at(index);
        const handle = older.handle(name) ?? UNKNOWN; // the state forgets handles, whose rows can stay
        return html`<${Row} name=${name} handle=${handle} settled=${older.isSettled(name)} active=${active} />`;
      }}
    />
    ${text && older.handle(text) === null && html`<p><a href=${to("handles", [text])}>Open the handle <${Text} value=${text} /></a>, which is not in the list.</p>`}
    ${problems.length === 0 && !older.complete && html`<${Rest} older=${older} />`}
  </section>`;
}

/** The rows of the list, and what they are found in. @param {() => void} changed */
function listed(changed) {
  const names = new Names();
  const shown = {
    /** @type {{ text: string, statuses: string[] } | null} */
    filter: null,
    update() {
      const { text = "", statuses = [] } = shown.filter ?? {};
      names.update(shown.filter === null ? [] : matching(older.names(), text, statuses, (name) => older.handle(name)));
    },
  };
  const count = () => {
    shown.update();
    return names.count;
  };
  const older = new Older(count, changed);
  return { names, older, shown };
}

/** What a filter cannot mean; then it selects no handle. @param {URLSearchParams} query */
function problemsOf(query) {
  const others = [...query.keys()].filter((name) => name !== "text" && name !== "status");
  const unknown = query.getAll("status").filter((one) => !STATUSES.includes(one));
  return [
    ...others.map((name) => `${name} is not a filter`),
    ...unknown.map((one) => `${one} is not a status of a handle: these are ${STATUSES.join(", ")}`),
  ];
}

/** @param {Older} older @param {boolean} filtered */
function noneOf(older, filtered) {
  if (older.busy) return "None so far. Reading older runs…";
  if (!older.complete) return "None so far.";
  if (filtered) return "No handle matches the filter.";
  return limits.value ? "There are no handles that your token may see." : "There are no handles yet.";
}

/** What the list lacks, and how to go on. @param {{ older: Older }} props */
function Rest({ older }) {
  return html`<p class="rest" role="status">
    ${older.failed && "Older runs could not be read. "}
    ${older.reached === null
      ? "The list has the handles with a pending run, a draft, or one of the 1,000 runs that ended last."
      : html`The list has the handles with a pending run or a draft, and those of all runs back to <${Moment} at=${older.reached} />.`}
    ${older.busy ? " Reading older runs…" : html`${" "}<button onClick=${() => older.more()}>Read on</button>`}
  </p>`;
}

/** @param {{ status: string, chosen: string[], set: (change: { status: string[] }) => void }} props */
function Chip({ status, chosen, set }) {
  const pressed = chosen.includes(status);
  const flip = () => set({ status: pressed ? chosen.filter((one) => one !== status) : [...chosen, status] });
  return html`<button type="button" class="chip" aria-pressed=${pressed} onClick=${flip}>${status}</button>`;
}

/** `settled`: whether its last outcome is known. @param {{ name: string, handle: HandleState, settled: boolean, active: import("../../../vendor/ui.js").Signal<string> }} props */
function Row({ name, handle, settled, active }) {
  const outcomeUnknown = handle.status === "Idle" && !settled;
  /** @param {any} event */
  const open = (event) => {
    if (isDrag(event)) return;
    active.value = name;
    if (!event.target.closest("a")) go(to("handles", [name]));
  };
  return html`<div class="cells" style=${GRID} onClick=${open}>
    <span role="gridcell"><${HandleLink} name=${name} /></span>
    <span role="gridcell"><${HandleStatus} handle=${handle} />${outcomeUnknown && html` <small class="faint">last outcome not loaded</small>`}</span>
    <span role="gridcell" data-label="active run">${handle.active_run && html`<${RunLink} id=${handle.active_run} short tabindex="-1" />`}</span>
    <span role="gridcell" class="number" data-label="waiting">${handle.waiting.length || ""}</span>
    <span role="gridcell">${handle.params !== null && "draft"}</span>
  </div>`;
}
