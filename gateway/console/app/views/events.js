/**
 * The events as they happen, with a filter that is in the address. The page keeps the latest ones, and, while it is
 * paused, goes on to receive them without moving what a person reads.
 */

import { EVENT_TYPES, writeExact } from "../../greenroom.js";
import { html, useEffect, useMemo, useRef, useSignal } from "../../vendor/ui.js";
import { Moment, Nothing, RunLink } from "../parts/basic.js";
import { FilterForm } from "../parts/filterform.js";
import { Json } from "../parts/json.js";
import { leaveList } from "../parts/listkeys.js";
import { News, atTop } from "../parts/news.js";
import { InvisibleLetters, Text, visible } from "../parts/text.js";
import { VirtualList } from "../parts/virtual.js";
import { go, to } from "../state/address.js";
import { focusList } from "../state/focus.js";
import { useShortcuts } from "../state/keys.js";
import { isPhone } from "../state/phone.js";
import { isDrag } from "../state/pointer.js";
import { useResting } from "../state/resting.js";
import { client, live } from "../state/session.js";
import { Tail } from "../state/tail.js";

const KEPT = 5_000;
const HEIGHT = 34;
const CARD = 84; // the height of an event on a phone
const FIELDS = ["type", "handle", "lane", "run"];
const COMMON = new Set(["seq", "at", "type", "by", "run", "handle", "lane"]);
const COLUMNS = { gridTemplateColumns: "6rem 7.5rem 11rem 6.5rem minmax(6rem, 1fr) minmax(10rem, 3fr)" };
const LONGEST = 300;

/** @typedef {import("../../greenroom.js").GreenroomEvent} GreenroomEvent */

/** @param {{ query: URLSearchParams }} props */
export function Events({ query }) {
  const tail = useMemo(() => new Tail(KEPT), [String(query)]);
  const frozen = useSignal(/** @type {Tail | null} */ (null));
  const active = useSignal(0);
  const { resting, handlers } = useResting();
  const held = useMemo(() => ({ copy: /** @type {Tail | null} */ (null) }), [tail]); // a copy while a person is at its rows
  const shows = useSignal(0);
  shows.value; // renders again
  const problems = problemsOf(query);
  useEffect(() => {
    frozen.value = null;
    active.value = 0;
    if (problems.length > 0) return undefined;
    const { state } = client();
    let [epoch, last] = [state.epoch, state.seq];
    const ignoreGaps = client().onEvent((event) => {
      if (event.type !== "snapshot") return void (last = event.seq);
      const { snapshot } = event;
      if (snapshot.epoch !== epoch) tail.add({ type: "gap", missed: null });
      else if (snapshot.seq > last) tail.add({ type: "gap", missed: snapshot.seq - last });
      [epoch, last] = [snapshot.epoch, snapshot.seq];
    });
    const ignoreEvents = client().onEvent((event) => {
      if (event.type === "snapshot") return;
      tail.add(event);
    }, filterOf(query));
    return () => {
      ignoreGaps();
      ignoreEvents();
    };
  }, [tail]);
  const pause = () => {
    frozen.value = frozen.peek() === null ? (held.copy ?? tail.copy()) : null;
  };
  live.frame.value; // renders again
  const stays = frozen.value === null && (resting.value || (held.copy ?? tail).rowOf(active.value) >= 0);
  held.copy = stays && tail.count > 0 ? (held.copy ?? tail.copy()) : null;
  const shown = frozen.value ?? held.copy ?? tail;
  const listed = useRef(shown);
  listed.current = shown;
  useShortcuts(() => keys(() => listed.current, active, pause), [tail]);
  const show = () => {
    held.copy = null;
    active.value = 0;
    shows.value += 1;
  };
  const { item: chosen = null } = shown.at(shown.rowOf(active.value)) ?? {}; // undefined in row -1
  return html`<section class="runs" aria-labelledby="events-title">
    <div class="title">
      <h1 id="events-title">Events</h1>
      <span class="faint number">the latest ${shown.count.toLocaleString()}</span>
      <button onClick=${pause}>${frozen.value === null ? "Pause" : "Continue"}</button>
      ${frozen.value !== null && html`<span class="faint number">${tail.since(frozen.value).toLocaleString()} since then</span>`}
      <${News} count=${held.copy === null ? 0 : tail.since(held.copy)} what="event" show=${() => atTop(show)} />
    </div>
    <${Filters} query=${query} />
    ${problems.length > 0 &&
    html`<p class="error-text" role="alert">No event is listed, because the filter is unknown: <${Text} value=${problems.join("; ")} />.</p>`}
    ${shown.count === 0 && problems.length === 0 && html`<${Nothing}>Events appear here as they happen.<//>`}
    <${VirtualList}
      label="Events"
      count=${shown.count}
      height=${isPhone.value ? CARD : HEIGHT}
      keyOf=${(/** @type {number} */ row) => String(shown.at(row).number)}
      indexOf=${(/** @type {string} */ key) => shown.rowOf(Number(key))}
      active=${shown.rowOf(active.value)}
      head=${html`<${Head} />`}
      handlers=${handlers}
      row=${(/** @type {number} */ row) => html`<${Row} entry=${shown.at(row)} active=${active} />`}
    />
    ${chosen && chosen.type !== "gap" && html`<section class="card event-detail" aria-labelledby="event-title">
      <h2 id="event-title">Event ${chosen.seq} <button class="quiet" onClick=${() => (active.value = 0)}>Close</button></h2>
      <${Json} key=${chosen.seq} value=${chosen} name=${`event ${chosen.seq}`} />
    </section>`}
  </section>`;
}

const Head = () => html`<div class="list-head row" role="row" aria-rowindex="1" style=${COLUMNS}>
  ${["Number", "Time", "Event", "Run", "By", "What"].map((title) => html`<span key=${title} role="columnheader">${title}</span>`)}
</div>`;

/** @param {{ entry: import("../state/tail.js").Entry, active: import("../../vendor/ui.js").Signal<number> }} props */
function Row({ entry: { number, item: event }, active }) {
  if (event.type === "gap") return html`<div class="cells gap"><span role="gridcell">${told(event)}</span></div>`;
  const run = "run" in event && typeof event.run === "string" ? event.run : null;
  /** @param {any} click */
  const choose = (click) => {
    if (!click.target.closest("a") && !isDrag(click)) active.value = number;
  };
  return html`<div class="cells" style=${COLUMNS} onClick=${choose}>
    <span role="gridcell" class="mono faint">${event.seq}</span>
    <span role="gridcell"><${Moment} at=${event.at} /></span>
    <span role="gridcell"><strong>${event.type}</strong></span>
    <span role="gridcell" data-label="run">${run && html`<${RunLink} id=${run} short />`}</span>
    <span role="gridcell" data-label="by"><${Text} value=${event.by} /></span>
    <span role="gridcell" class="cell-what mono">${summary(event)}</span>
  </div>`;
}

/** @param {import("../state/tail.js").Gap} gap */
function told({ missed }) {
  if (missed === null) return "The engine began anew: its events are numbered from 1 again.";
  return missed === 1 ? "1 event was not received here." : `${missed.toLocaleString()} events were not received here.`;
}

/** @type {WeakMap<GreenroomEvent, string>} */
const summaries = new WeakMap(); // parameters can be large, and rows render often

/** The fields that only this type of event has, in one line. @param {GreenroomEvent} event */
function summary(event) {
  const known = summaries.get(event);
  if (known !== undefined) return known;
  const own = Object.entries(event).filter(([name, value]) => !COMMON.has(name) && value !== null);
  const parts = own.map(([name, value]) => `${name}=${typeof value === "string" ? value : writeExact(value)}`);
  const text = visible(parts.join(" ").slice(0, LONGEST));
  summaries.set(event, text);
  return text;
}

/** Each field keeps what a person writes, whatever arrives meanwhile. @param {{ query: URLSearchParams }} props */
function Filters({ query }) {
  /** @param {string} name @param {string} value */
  const set = (name, value) => {
    const all = Object.fromEntries(FIELDS.map((field) => [field, query.getAll(field)]));
    go(to("events", [], { ...all, [name]: value.split(/[\s,]+/).filter(Boolean) }), { replace: true });
  };
  return html`<${FilterForm} count=${query.size}>
    <div class="fields">
      ${FIELDS.map(
        (name) => html`<label key=${name} class="field">
          <span>${name}</span>
          <input
            key=${query.getAll(name).join(" ")}
            defaultValue=${query.getAll(name).join(" ")}
            list=${name === "type" ? "event-types" : undefined}
            onChange=${(/** @type {any} */ event) => set(name, event.currentTarget.value)}
          />
          <${InvisibleLetters} value=${query.getAll(name).join(" ")} />
        </label>`,
      )}
      <datalist id="event-types">${EVENT_TYPES.map((type) => html`<option key=${type} value=${type} />`)}</datalist>
      ${query.size > 0 && html`<a class="button quiet" href=${to("events")}>Clear all</a>`}
    </div>
  <//>`;
}

/**
 * The filter of the stream. Events without a handle, lane or run, such as those of the engine, pass these.
 * @param {URLSearchParams} query
 */
function filterOf(query) {
  const pairs = FIELDS.map((name) => [`${name}s`, query.getAll(name)]).filter(([, values]) => values.length > 0);
  return Object.fromEntries(pairs);
}

/** What the filter cannot mean. @param {URLSearchParams} query */
function problemsOf(query) {
  const names = [...query.keys()].filter((name) => !FIELDS.includes(name));
  const types = query.getAll("type").filter((type) => !EVENT_TYPES.some((known) => known === type));
  return [...names.map((name) => `${name} is not a filter`), ...types.map((type) => `${type} is not a type of events`)];
}

/** @param {() => Tail} shown @param {import("../../vendor/ui.js").Signal<number>} active @param {() => void} pause */
function keys(shown, active, pause) {
  /** @param {number} by */
  const move = (by) => {
    const tail = shown();
    if (tail.count === 0) return;
    focusList();
    const row = tail.rowOf(active.peek()) + by;
    active.value = tail.at(Math.max(0, Math.min(tail.count - 1, row))).number;
  };
  return [
    { key: "j", what: "Next event", run: () => move(1) },
    { key: "k", what: "Previous event", run: () => move(-1) },
    { key: "p", what: "Pause or continue", run: pause },
    { key: "Escape", what: "Close the event, and leave the list", run: () => leaveList(() => (active.value = 0)) },
  ];
}
