/** All schedules: what fires next, and how the last firing went. */

import { html, useSignal } from "../../../vendor/ui.js";
import { Nothing } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { may } from "../../state/session.js";
import { Actions, declaredIn } from "./actions.js";
import { Form } from "./form.js";
import { Outcome } from "./outcome.js";
import { useSchedules } from "./reading.js";
import { NextTimes, Rule } from "./times.js";

const PAGE = 100;

/** @typedef {import("../../../greenroom.js").ScheduleRecord} ScheduleRecord */

export function Schedules() {
  const text = useSignal("");
  const shown = useSignal(PAGE);
  const { schedules, again, note } = useSchedules();
  const all = [...(schedules ?? [])].sort((one, other) => one.name.localeCompare(other.name));
  const found = all.filter(({ name, job }) => `${name} ${job}`.includes(text.value));
  return html`<section aria-labelledby="schedules-title">
    <div class="title">
      <h1 id="schedules-title">Schedules</h1>
      <span class="faint number">${found.length.toLocaleString()}</span>
      <label class="field">
        <span>name or job</span>
        <input value=${text.value} onInput=${(/** @type {any} */ event) => (text.value = event.currentTarget.value)} />
      </label>
    </div>
    ${may("operator") && html`<details class="card"><summary><h2>New schedule</h2></summary><${Form} /></details>`}
    ${note}
    ${schedules && found.length === 0 && html`<${Nothing}>${all.length > 0 ? "No schedule contains this text." : "There are no schedules yet."}<//>`}
    <ul class="grid">${found.slice(0, shown.value).map((schedule) => html`<${Entry} key=${schedule.name} schedule=${schedule} again=${again} />`)}</ul>
    ${found.length > shown.value && html`<button onClick=${() => (shown.value += PAGE)}>${found.length - shown.value} more</button>`}
  </section>`;
}

/** @param {{ schedule: ScheduleRecord, again: () => void }} props */
function Entry({ schedule, again }) {
  const { name, job, paused, next } = schedule;
  return html`<li class="card">
    <p class="card-head">
      <strong><a href=${to("schedules", [name])}><${Text} value=${name} /></a></strong>
      ${paused && html`<span class="state paused">paused</span>`}
      ${declaredIn(schedule) && html`<span class="faint">${declaredIn(schedule)}</span>`}
    </p>
    <dl class="about">
      <div><dt>job</dt><dd><${Text} value=${job} /></dd></div>
      <div><dt>times</dt><dd><${Rule} schedule=${schedule} /></dd></div>
      <div><dt>next</dt><dd><${NextTimes} schedule=${{ ...schedule, next: next.slice(0, 1) }} /></dd></div>
      <div><dt>last</dt><dd><${Outcome} schedule=${schedule} /></dd></div>
    </dl>
    <${Actions} schedule=${schedule} again=${again} />
  </li>`;
}
