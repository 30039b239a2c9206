/** What was sent to a run: messages, and signals with their keys. */

import { html } from "../../../vendor/ui.js";
import { Moment } from "../../parts/basic.js";
import { Json } from "../../parts/json.js";
import { Text } from "../../parts/text.js";
import { Events } from "./events.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */

/** @param {{ events: readonly GreenroomEvent[] }} props all events of the run */
export const Messages = ({ events }) => html`<${Events} events=${events.filter(isSent)} row=${Row} />`;

/** @param {GreenroomEvent} event */
export const isSent = (event) => event.type === "run_message" || event.type === "run_signal";

/** @param {{ event: import("../../../greenroom.js").RunMessage | import("../../../greenroom.js").RunSignal }} props */
function Row({ event }) {
  const isSignal = event.type === "run_signal";
  return html`<li>
    <${Moment} at=${event.at} />
    ${isSignal ? html`<span>signal <strong><${Text} value=${event.key} /></strong></span>` : html`<span>message</span>`}
    <span class="faint">by <${Text} value=${event.by} /></span>
    <${Json} value=${isSignal ? event.value : event.message} name=${`${isSignal ? "signal" : "message"} ${event.seq}`} />
  </li>`;
}
