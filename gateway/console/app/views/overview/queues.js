/** The lanes in which runs wait: which run waits longest, and which runs use the slots. */

import { html } from "../../../vendor/ui.js";
import { Elapsed, FilterLink, RunLink } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { useKept } from "../../state/kept.js";
import { live } from "../../state/session.js";

const SHOWN = 10;

/** @typedef {import("../../state/survey.js").Wait} Wait */

/** `holds`: whether the entries stay in place, because a person is near. @param {{ holds: boolean }} props */
export function Queues({ holds }) {
  const { shown: waits } = useKept([...live.survey.value.waits].sort(([, one], [, other]) => one.since - other.since), holds);
  if (waits.length === 0) return null;
  return html`<section class="card" aria-labelledby="queues-title">
    <h2 id="queues-title">Queues</h2>
    <ul class="entries">
      ${waits.slice(0, SHOWN).map(({ key: lane, value, gone }) => html`<${Queue} key=${lane} lane=${lane} wait=${value} gone=${gone} />`)}
    </ul>
    ${waits.length > SHOWN && html`<p class="faint">and ${waits.length - SHOWN} more lanes</p>`}
  </section>`;
}

/** @param {{ lane: string, wait: Wait, gone: boolean }} props */
function Queue({ lane, wait: { run, since, queued, blockers }, gone }) {
  if (gone) return html`<li class="gone"><strong><${FilterLink} query=${{ lane, status: "queued" }} value=${lane} /></strong> <span>no run waits any more</span></li>`;
  return html`<li>
    <strong><${FilterLink} query=${{ lane, status: "queued" }} value=${lane} /></strong>
    <span class="number">${queued.toLocaleString()} queued</span>
    <span><${RunLink} id=${run.id} short /> has waited <${Elapsed} from=${since} /></span>
    <span class="faint">${reason(lane, run)}</span>
    ${blockers.length > 0 &&
    html`<span>behind ${blockers.map(({ id, job }) => html`<span key=${id}><${RunLink} id=${id} short /> <${Text} value=${job} /> </span>`)}</span>`}
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
