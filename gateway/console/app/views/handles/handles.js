/** The list of handles: live, of any length, with its search in the address. */

import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { HandleLink, Nothing, RunLink } from "../../parts/basic.js";
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
import { useResting } from "../../state/resting.js";
import { limits, live } from "../../state/session.js";
import { Names, matching } from "./names.js";
import { HandleStatus, STATUSES, UNKNOWN } from "./status.js";

const HEIGHT = 36;
const CARD = 80; // the height of a handle on a phone
const GRID = { gridTemplateColumns: "minmax(12rem, 2fr) minmax(11rem, 1fr) 8rem 6rem 6rem" };

/** @param {{ query: URLSearchParams }} props */
export function Handles({ query }) {
  const names = useMemo(() => new Names(), []);
  const active = useSignal("");
  const text = query.get("text") ?? "";
  const statuses = query.getAll("status");
  const { resting, handlers } = useResting();
  const list = useMemo(() => new HeldList(names), [String(query)]);
  const shows = useSignal(0);
  useShortcuts(() => listKeys("handle", list, active, (name) => go(to("handles", [name]))), [list]);
  shows.value; // renders again
  live.frame.value; // renders again after each change
  names.update(matching(live.handleNames(), text, statuses, (name) => live.handle(name)));
  list.hold(resting.value || list.indexOf(active.value) >= 0);
  const show = () => {
    list.release();
    active.value = "";
    shows.value += 1;
  };

  /** @param {Record<string, string | string[] | null>} change */
  const set = (change) => go(to("handles", [], { text, status: statuses, ...change }), { replace: true });
  const head = html`<div class="list-head row" role="row" aria-rowindex="1" style=${GRID}>
    ${["Handle", "Status", "Active run", "Waiting", "Draft"].map((title) => html`<span key=${title} role="columnheader">${title}</span>`)}
  </div>`;
  return html`<section class="runs" aria-labelledby="handles-title">
    <div class="title">
      <h1 id="handles-title">Handles</h1>
      <span class="faint number">${names.count.toLocaleString()}${live.hasAllEnded ? "" : "+"}</span>
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
    ${names.count === 0 && html`<${Nothing}>${query.size > 0 ? "No handle matches the filter." : limits.value ? "There are no handles that your token may see." : "There are no handles yet."}<//>`}
    <${VirtualList}
      label="Handles"
      count=${list.count}
      height=${isPhone.value ? CARD : HEIGHT}
      keyOf=${list.at}
      indexOf=${list.indexOf}
      active=${list.indexOf(active.value)}
      head=${head}
      handlers=${handlers}
      row=${(/** @type {number} */ index) => html`<${Row} name=${list.at(index)} active=${active} />`}
    />
    ${text && live.handle(text) === null && html`<p><a href=${to("handles", [text])}>Open the handle <${Text} value=${text} /></a>, which is not in the list.</p>`}
    <p class="faint">The list has the handles with a pending run, a draft, or one of the 1,000 runs that ended last.
      To open another handle, search for its whole name.</p>
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
  const handle = live.handle(name) ?? UNKNOWN; // the state forgets handles, whose rows can stay
  const outcomeUnknown = handle.status === "Idle" && !live.hasAllEnded;
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
