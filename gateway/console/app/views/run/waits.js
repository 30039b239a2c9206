/** Why a pending run does not execute, and where it stands in the queue. */

import { html } from "../../../vendor/ui.js";
import { HandleLink, Moment } from "../../parts/basic.js";
import { live } from "../../state/session.js";
import { isHeldByDraining } from "../../state/why.js";
import { NamedRun } from "../runs/name.js";
import { ForSlot, counted } from "./slot.js";
import { Suspended } from "./suspended.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/** @param {{ run: RunRecord, events: readonly import("../../../greenroom.js").GreenroomEvent[] }} props */
export function Waits({ run, events }) {
  if (run.status !== "queued" && run.status !== "suspended") return null;
  return html`<section class="card waits" aria-labelledby="waits-title">
    <h2 id="waits-title">Why it waits</h2>
    ${run.status === "queued" ? html`<${Queued} run=${run} />` : html`<${Suspended} run=${run} events=${events} />`}
  </section>`;
}

/** @param {{ run: RunRecord }} props */
function Queued({ run }) {
  const draining = live.counts.value?.engine.draining ?? false;
  return html`${isHeldByDraining(run, draining) && html`<p>The engine is draining: no queued run starts until it is resumed.</p>`}
    ${run.waiting_for === "time" ? html`<${ForTime} run=${run} />` : run.place === null ? html`<${ForHandle} run=${run} />` : html`<${ForSlot} run=${run} />`}`;
}

/** @param {{ run: RunRecord }} props */
const ForTime = ({ run }) => html`<p>It does not start before <${Moment} at=${run.not_before} />.</p>`;

/** @param {{ run: RunRecord }} props */
function ForHandle({ run }) {
  const { active_run: active = null, waiting = [] } = live.handle(run.handle) ?? {};
  const before = waiting.indexOf(run.id);
  const place = before === 0 ? "This run is the next one." : `${counted(before)} of the handle ${before === 1 ? "comes" : "come"} first.`;
  return html`<p>The handle <${HandleLink} name=${run.handle} /> is busy${active && html` with run <${NamedRun} run=${active} />`}. ${before >= 0 && place}</p>`;
}
