/** The processes that execute bodies, with what they execute now, and the nodes of the cluster. */

import { html } from "../../vendor/ui.js";
import { Nothing, RunLink } from "../parts/basic.js";
import { confirmed } from "../parts/dialog.js";
import { Use } from "../parts/limit.js";
import { Text } from "../parts/text.js";
import { client, live, may } from "../state/session.js";
import { attempt } from "../state/toasts.js";
import { Cluster } from "./cluster.js";
import { workOf } from "./runs/filter.js";

const SHOWN = 10;

/** @typedef {import("../../greenroom.js").ExecutorState} ExecutorState */
/** @typedef {import("../../greenroom.js").RunRecord} RunRecord */

export function Executors() {
  const executors = live.executors.value.toSorted(([one], [other]) => one.localeCompare(other));
  const here = live.survey.value.executing.get(null) ?? [];
  return html`<section aria-labelledby="executors-title">
    <div class="title">
      <h1 id="executors-title">Executors</h1>
      <span class="faint number">${executors.length.toLocaleString()}</span>
    </div>
    ${executors.length === 0 && html`<${Nothing}>No executor is attached. The engine executes all bodies in its own process.<//>`}
    <ul class="grid">
      ${executors.map(([id, executor]) => html`<${Executor} key=${id} id=${id} executor=${executor} />`)}
      ${(here.length > 0 || executors.length === 0) &&
      html`<li class="card" key="">
        <p class="card-head"><strong>The process of the engine</strong></p>
        <dl class="about"><div><dt>executes</dt><dd><${Runs} runs=${here} /></dd></div></dl>
      </li>`}
    </ul>
    <${Cluster} />
  </section>`;
}

/** @param {{ id: string, executor: ExecutorState }} props */
function Executor({ id, executor: { status, slots, labels, jobs } }) {
  const runs = live.survey.value.executing.get(id) ?? [];
  return html`<li class="card">
    <p class="card-head">
      <strong><${Text} value=${id} mono /></strong> <span class="state ${status}">${status}</span>
      ${may("admin") && status !== "draining" && html`<button class="quiet" onClick=${() => drain(id)}>Drain</button>`}
    </p>
    <dl class="about">
      <div><dt>slots</dt><dd><${Slots} used=${runs.length} slots=${slots} /></dd></div>
      <div><dt>executes</dt><dd><${Runs} runs=${runs} /></dd></div>
      <div><dt>labels</dt><dd><${Names} names=${labels} /></dd></div>
      <div><dt>jobs</dt><dd><${Names} names=${jobs} /></dd></div>
    </dl>
  </li>`;
}

/** @param {{ used: number, slots: number | null }} props */
function Slots({ used, slots }) {
  if (slots === null) return html`<span class="number">${used}</span> in use; only the limits of the engine and its lanes apply`;
  return html`<${Use} used=${used} limit=${slots} of />`;
}

/** @param {{ runs: RunRecord[] }} props */
function Runs({ runs }) {
  if (runs.length === 0) return html`<span class="faint">nothing</span>`;
  return html`<ul>
    ${runs.slice(0, SHOWN).map(
      (run) => html`<li key=${run.id}>
        <${RunLink} id=${run.id} short /> <${Text} value=${workOf(run)} /> <span class="faint"><${Text} value=${run.handle} /></span>
      </li>`,
    )}
    ${runs.length > SHOWN && html`<li class="faint">and ${(runs.length - SHOWN).toLocaleString()} more</li>`}
  </ul>`;
}

/** @param {{ names: string[] }} props */
function Names({ names }) {
  if (names.length === 0) return html`<span class="faint">–</span>`;
  return names.map((name) => html`<span key=${name} class="tag"><${Text} value=${name} /></span>`);
}

/** @param {string} id */
async function drain(id) {
  const body = html`<p>Executor <${Text} value=${id} mono /> takes no more runs. Its process exits after its last body has ended.</p>`;
  if (await confirmed({ title: "Drain the executor?", body, label: "Drain" })) {
    await attempt(() => client().executors.drain(id), `executor ${id} is draining`);
  }
}
