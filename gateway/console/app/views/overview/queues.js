/** The lanes in which runs wait: which run waits longest, and which runs use the slots. */

import { html } from "../../../vendor/ui.js";
import { Elapsed, FilterLink, RunLink } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { live } from "../../state/session.js";
import { workOf } from "../runs/filter.js";

const SHOWN = 10;

/** @typedef {import("../../state/survey.js").Wait} Wait */

export function Queues() {
  const waits = [...live.survey.value.waits].sort(([, one], [, other]) => one.since - other.since);
  if (waits.length === 0) return null;
  return html`<section class="card" aria-labelledby="queues-title">
    <h2 id="queues-title">Queues</h2>
    <ul class="entries">
      ${waits.slice(0, SHOWN).map(([lane, wait]) => html`<${Queue} key=${lane} lane=${lane} wait=${wait} />`)}
    </ul>
    ${waits.length > SHOWN && html`<p class="faint">and ${waits.length - SHOWN} more lanes</p>`}
  </section>`;
}

/** @param {{ lane: string, wait: Wait }} props */
function Queue({ lane, wait: { run, since, queued, blockers } }) {
  return html`<li>
    <strong><${FilterLink} query=${{ lane, status: "queued" }} value=${lane} /></strong>
    <span class="number">${queued.toLocaleString()} queued</span>
    <span><${RunLink} id=${run.id} short /> <${Text} value=${workOf(run)} /> has waited <${Elapsed} from=${since} /></span>
    <span class="faint">${reason(lane, run)}</span>
    ${blockers.length > 0 &&
    html`<span>behind ${blockers.map((run) => html`<span key=${run.id}><${RunLink} id=${run.id} short /> <${Text} value=${workOf(run)} /> </span>`)}</span>`}
  </li>`;
}

/** Why the first run of a lane does not start. @param {string} name @param {import("../../../greenroom.js").RunRecord} run */
export function reason(name, run) {
  const counts = live.counts.value;
  const lane = Object.hasOwn(counts?.lanes ?? {}, name) ? counts?.lanes[name] : undefined;
  if (!counts || !lane) return "";
  if (lane.paused) return "the lane is paused";
  if (run.waiting_for === "executor") return "no executor has room for it";
  if (lane.limit !== null && lane.executing >= lane.limit) return `slots of the lane: ${lane.executing} of ${lane.limit} in use`;
  const { executing, max_concurrent: most } = counts.engine;
  if (executing >= most) return `slots of the engine: ${executing} of ${most} in use`;
  return Object.keys(live.rules(name)).length > 0 ? "a rule of the lane delays it" : "";
}
