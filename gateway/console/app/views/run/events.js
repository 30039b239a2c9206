/** The events of a run, one by one. */

import { html, useSignal } from "../../../vendor/ui.js";
import { Moment } from "../../parts/basic.js";
import { Json } from "../../parts/json.js";
import { Text } from "../../parts/text.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */

const PAGE = 200;
const COMMON = new Set(["seq", "at", "type", "by", "run", "handle", "lane"]);

/**
 * All events of a run, folded at first. What is folded is not rendered, because a run can have many events per second.
 * @param {{ story: import("./story.js").Story }} props
 */
export function AllEvents({ story }) {
  const open = useSignal(false);
  const events = story.events.value;
  return html`<details class="card" onToggle=${(/** @type {any} */ event) => (open.value = event.currentTarget.open)}>
    <summary><h2>Events</h2> <span class="faint number">${events.length}</span></summary>
    ${open.value && html`<${FilteredEvents} events=${events} /><${Earlier} story=${story} />`}
  </details>`;
}

/** The events, of which a person can choose some types. @param {{ events: readonly GreenroomEvent[] }} props */
function FilteredEvents({ events }) {
  const chosen = useSignal(/** @type {string[]} */ ([]));
  const types = [...new Set(events.map(({ type }) => type))].sort();
  const shown = chosen.value.length > 0 ? events.filter(({ type }) => chosen.value.includes(type)) : events;
  /** @param {string} type */
  const flip = (type) => (chosen.value = chosen.value.includes(type) ? chosen.value.filter((one) => one !== type) : [...chosen.value, type]);
  return html`<div class="chips" role="group" aria-label="Types">
      ${types.map(
        (type) => html`<button key=${type} class="chip" aria-pressed=${chosen.value.includes(type)} onClick=${() => flip(type)}>${type}</button>`,
      )}
    </div>
    <${Events} events=${shown} />`;
}

/** Reads the events that precede those of the page. @param {{ story: import("./story.js").Story }} props */
export function Earlier({ story }) {
  return story.hasEarlier.value && html`<button class="quiet" onClick=${() => story.earlier()}>Read earlier events</button>`;
}

/** `row`: the component that shows one. @param {{ events: readonly GreenroomEvent[], row?: any }} props */
export function Events({ events, row: Row = Event }) {
  const shown = useSignal(PAGE);
  const first = Math.max(0, events.length - shown.value);
  return html`<ol class="events">
      ${events.slice(first).reverse().map((event) => html`<${Row} key=${event.seq} event=${event} />`)}
    </ol>
    ${first > 0 && html`<button class="quiet" onClick=${() => (shown.value += 5 * PAGE)}>${first} earlier ones</button>`}`;
}

/** @param {{ event: GreenroomEvent }} props */
function Event({ event }) {
  const own = Object.entries(event).filter(([name]) => !COMMON.has(name));
  return html`<li>
    <span class="faint mono">${event.seq}</span>
    <${Moment} at=${event.at} />
    <strong>${event.type}</strong>
    <span class="faint">by <${Text} value=${event.by} /></span>
    ${own.length > 0 && html`<${Json} value=${Object.fromEntries(own)} name=${`event ${event.seq}`} open=${false} />`}
  </li>`;
}
