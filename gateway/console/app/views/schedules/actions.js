/** What whoever may does with a schedule. */

import { html } from "../../../vendor/ui.js";
import { confirmed } from "../../parts/dialog.js";
import { Text, visible } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { client, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";

/** @typedef {import("../../../greenroom.js").ScheduleRecord} ScheduleRecord */

/** Where a schedule is declared; empty if it can be changed and deleted here. @param {ScheduleRecord} schedule */
export const declaredIn = ({ source }) => (source === "code" ? "declared in code" : source === "config" ? "declared in the configuration" : "");

/** `again`: called after a change. @param {{ schedule: ScheduleRecord, again: () => void }} props */
export function Actions({ schedule, again }) {
  const { name, paused } = schedule;
  if (!may("operator")) return null;
  const { schedules } = client();
  const flip = async () => {
    await attempt(() => (paused ? schedules.resume(name) : schedules.pause(name)), `the schedule is ${paused ? "resumed" : "paused"}`);
    again();
  };
  const trigger = () => attempt(() => schedules.trigger(name), ({ id }) => `run …${id.slice(-8)} (${visible(schedule.job)} of ${visible(schedule.handle)}) is submitted`);
  const of = visible(name);
  return html`<div class="actions">
    <button onClick=${flip} aria-label=${`${paused ? "Resume" : "Pause"} ${of}`}>${paused ? "Resume" : "Pause"}</button>
    <button onClick=${trigger} aria-label=${`Trigger ${of}`}>Trigger</button>
    ${!declaredIn(schedule) && html`<button class="danger" onClick=${() => remove(name)} aria-label=${`Delete ${of}`}>Delete</button>`}
  </div>`;
}

/** @param {string} name */
async function remove(name) {
  const body = html`<p>Schedule <${Text} value=${name} /> does not fire any more. Its runs stay.</p>`;
  if (!(await confirmed({ title: "Delete the schedule?", body, label: "Delete" }))) return;
  const done = await attempt(async () => {
    await client().schedules.delete(name);
    return true;
  }, "the schedule is deleted");
  if (done) go(to("schedules"));
}
