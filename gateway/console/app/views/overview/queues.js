/** The lanes in which runs wait for a slot: which run waits longest and why, and which runs use the slots. */

import { html } from "../../../vendor/ui.js";
import { Elapsed, FilterLink } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { useKept } from "../../state/kept.js";
import { live } from "../../state/session.js";
import { isHeldByDraining, reasons } from "../../state/why.js";
import { NamedRun, NamedRuns } from "../runs/name.js";

const SHOWN = 10;

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
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
function Queue({ lane, wait: { run, since, queued, again, blockers }, gone }) {
  if (gone) return html`<li class="gone"><strong><${FilterLink} query=${{ lane, status: "queued" }} value=${lane} /></strong> <span>no run waits any more</span></li>`;
  const draining = live.counts.value?.engine.draining ?? false;
  const why = [...(isHeldByDraining(run, draining) ? ["the engine is draining"] : []), ...reasonsOf(run)];
  return html`<li>
    <strong><${FilterLink} query=${{ lane, status: again > 0 ? ["queued", "suspended"] : "queued" }} value=${lane} /></strong>
    ${queued > 0 && html`<span class="number">${queued.toLocaleString()} queued</span>`}
    ${again > 0 && html`<span class="number">${again.toLocaleString()} ${again === 1 ? "waits" : "wait"} for a slot again</span>`}
    <span><${NamedRun} run=${run} /> has waited <${Elapsed} from=${since} /></span>
    ${why.length > 0 && html`<span class="faint"><${Text} value=${why.join("; ")} /></span>`}
    ${blockers.length > 0 && html`<span>behind <${NamedRuns} runs=${blockers} most=${blockers.length} /></span>`}
  </li>`;
}

/** Why a run does not get a slot, apart from draining. @param {RunRecord} run */
export function reasonsOf(run) {
  const counts = live.counts.value;
  if (counts === null) return [];
  return reasons(run, { counts, rules: live.rules(run.lane), executors: live.executors.value, survey: live.survey.value });
}
