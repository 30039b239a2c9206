/** One schedule: its next times, its last firing, what it submits, and the form to change it. */

import { html } from "../../../vendor/ui.js";
import { FilterLink } from "../../parts/basic.js";
import { Json } from "../../parts/json.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { may } from "../../state/session.js";
import { Actions, declaredIn } from "./actions.js";
import { Form } from "./form.js";
import { Outcome } from "./outcome.js";
import { useSchedules } from "./reading.js";
import { NextTimes, Rule } from "./times.js";

/** @param {{ names: string[] }} props */
export function Schedule({ names: [name] }) {
  const { schedules, again, note } = useSchedules();
  const schedule = schedules?.find((one) => one.name === name);
  if (!schedule) {
    return html`<section><div class="title"><h1><${Text} value=${name} /></h1></div>
      ${note}
      ${schedules && html`<p class="error-text">There is no schedule with this name. <a href=${to("schedules")}>Show all schedules.</a></p>`}</section>`;
  }
  const { job, handle, jitter, missed, source, paused, params, options } = schedule;
  return html`<section aria-labelledby="schedule-title">
    <div class="title">
      <h1 id="schedule-title"><${Text} value=${name} /></h1>
      ${paused && html`<span class="state paused">paused</span>`}
      <span class="spread"></span>
      <${Actions} schedule=${schedule} again=${again} />
    </div>
    ${note}
    <div class="columns">
      <section class="card" aria-labelledby="times-title">
        <h2 id="times-title">Times</h2>
        <dl class="about">
          <div><dt>rule</dt><dd><${Rule} schedule=${schedule} /></dd></div>
          <div><dt>next</dt><dd><${NextTimes} schedule=${schedule} /></dd></div>
          <div><dt>last</dt><dd><${Outcome} schedule=${schedule} /></dd></div>
          ${jitter > 0 && html`<div><dt>jitter</dt><dd class="number">up to ${jitter} s</dd></div>`}
          <div><dt>missed</dt><dd><${Text} value=${missed} /></dd></div>
          <div><dt>source</dt><dd>${declaredIn(schedule) || html`<${Text} value=${source} />`}</dd></div>
        </dl>
      </section>
      <section class="card" aria-labelledby="submits-title">
        <h2 id="submits-title">Runs</h2>
        <dl class="about">
          <div><dt>job</dt><dd><${Text} value=${job} /></dd></div>
          <div><dt>handle</dt><dd><${FilterLink} query=${{ handle }} value=${handle} /></dd></div>
        </dl>
        <h3>Parameters</h3>
        <${Json} value=${params} name="the parameters" />
        ${Object.keys(options).length > 0 && html`<h3>Options</h3><${Json} value=${options} name="the options" />`}
      </section>
    </div>
    ${may("operator") && !declaredIn(schedule) && html`<details class="card"><summary><h2>Change</h2></summary><${Form} key=${schedule.id} schedule=${schedule} /></details>`}
  </section>`;
}
