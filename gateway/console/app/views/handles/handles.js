/** The list of handles: live, of any length, with its search in the address. */

import { html, useEffect, useMemo, useSignal } from "../../../vendor/ui.js";
import { HandleLink, Nothing, RunLink } from "../../parts/basic.js";
import { listKeys } from "../../parts/listkeys.js";
import { VirtualList } from "../../parts/virtual.js";
import { go, to } from "../../state/address.js";
import { addShortcuts } from "../../state/keys.js";
import { isDrag } from "../../state/pointer.js";
import { live } from "../../state/session.js";
import { Names, matching } from "./names.js";
import { HandleStatus, STATUSES } from "./status.js";

const HEIGHT = 36;
const GRID = { gridTemplateColumns: "minmax(12rem, 2fr) minmax(11rem, 1fr) 8rem 6rem 6rem" };

/** @param {{ query: URLSearchParams }} props */
export function Handles({ query }) {
  const names = useMemo(() => new Names(), []);
  const active = useSignal("");
  const text = query.get("text") ?? "";
  const statuses = query.getAll("status");
  useEffect(() => addShortcuts(listKeys("handle", names, active, (name) => go(to("handles", [name])))), [names]);
  live.frame.value; // renders again after each change
  names.update(matching(live.handleNames(), text, statuses, (name) => live.handle(name)));

  /** @param {Record<string, string | string[] | null>} change */
  const set = (change) => go(to("handles", [], { text, status: statuses, ...change }), { replace: true });
  const head = html`<div class="list-head row" role="row" aria-rowindex="1" style=${GRID}>
    ${["Handle", "Status", "Active run", "Waiting", "Draft"].map((title) => html`<span key=${title} role="columnheader">${title}</span>`)}
  </div>`;
  return html`<section class="runs" aria-labelledby="handles-title">
    <div class="title">
      <h1 id="handles-title">Handles</h1>
      <span class="faint number">${names.count.toLocaleString()}</span>
    </div>
    <form class="filters" aria-label="Filter" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <div class="chips" role="group" aria-label="Status">
        ${STATUSES.map((status) => html`<${Chip} key=${status} status=${status} chosen=${statuses} set=${set} />`)}
      </div>
      <label class="field wide">
        <span>name</span>
        <input type="search" value=${text} onInput=${(/** @type {any} */ event) => set({ text: event.currentTarget.value })} />
      </label>
    </form>
    <${VirtualList}
      label="Handles"
      count=${names.count}
      height=${HEIGHT}
      keyOf=${names.at}
      indexOf=${names.indexOf}
      active=${names.indexOf(active.value)}
      head=${head}
      row=${(/** @type {number} */ index) => html`<${Row} name=${names.at(index)} active=${active} />`}
    />
    ${names.count === 0 && html`<${Nothing}>${query.size > 0 ? "No handle matches the filter." : "There are no handles yet."}<//>`}
    <p class="faint">The list has the handles with a pending run, a draft, or one of the runs that ended last.
      A handle that is not in it has the address <code>/handles/…</code> all the same.</p>
  </section>`;
}

/** @param {{ status: string, chosen: string[], set: (change: { status: string[] }) => void }} props */
function Chip({ status, chosen, set }) {
  const pressed = chosen.includes(status);
  const flip = () => set({ status: pressed ? chosen.filter((one) => one !== status) : [...chosen, status] });
  return html`<button type="button" class="chip" aria-pressed=${pressed} onClick=${flip}>${status}</button>`;
}

/** @param {{ name: string, active: import("../../../vendor/ui.js").Signal<string> }} props */
function Row({ name, active }) {
  const handle = live.handle(name);
  if (handle === null) return null;
  /** @param {any} event */
  const open = (event) => {
    if (isDrag(event)) return;
    active.value = name;
    if (!event.target.closest("a")) go(to("handles", [name]));
  };
  return html`<div class="cells" style=${GRID} onClick=${open}>
    <span role="gridcell"><${HandleLink} name=${name} /></span>
    <span role="gridcell"><${HandleStatus} handle=${handle} /></span>
    <span role="gridcell">${handle.active_run && html`<${RunLink} id=${handle.active_run} short />`}</span>
    <span role="gridcell" class="number">${handle.waiting.length || ""}</span>
    <span role="gridcell">${handle.params !== null && "draft"}</span>
  </div>`;
}
