/** The workers, which execute nodes of flows: those that are offline first. */

import { html } from "../../vendor/ui.js";
import { Moment, Nothing } from "../parts/basic.js";
import { Text } from "../parts/text.js";
import { useReading } from "../state/reading.js";
import { client } from "../state/session.js";

/** @typedef {import("../../greenroom.js").WorkerState} WorkerState */

export const useWorkers = () => useReading(() => client().workers.list(), ["node_worker_changed"]);

export function Workers() {
  const { value: workers, error, at, again } = useWorkers();
  const sorted = (workers ?? []).toSorted((one, other) => rank(one) - rank(other) || one.id.localeCompare(other.id));
  return html`<section aria-labelledby="workers-title">
    <div class="title">
      <h1 id="workers-title">Workers</h1>
      ${workers && html`<span class="faint number">${workers.length.toLocaleString()}</span>`}
      <button onClick=${again}>Read loads again</button>
    </div>
    ${error && html`<p class="error-text" role="alert"><${Text} value=${error.message} /></p>`}
    ${workers?.length === 0 && html`<${Nothing}>No worker is registered. Workers execute the nodes of flows.<//>`}
    ${sorted.length > 0 && html`<p class="faint">Loads and heartbeats as of <${Moment} at=${at} />.</p>`}
    <ul class="grid">${sorted.map((worker) => html`<${Worker} key=${worker.id} worker=${worker} />`)}</ul>
  </section>`;
}

/** @param {WorkerState} worker */
const rank = ({ status }) => (status === "offline" ? 0 : 1);

/** @param {{ worker: WorkerState }} props */
function Worker({ worker: { id, url, kind, services, load, last_heartbeat, status } }) {
  return html`<li class="card">
    <p class="card-head"><strong><${Text} value=${id} mono /></strong> <span class="state ${status}">${status}</span></p>
    <dl class="about">
      <div><dt>services</dt><dd>${services.map((service) => html`<span key=${service} class="tag"><${Text} value=${service} /></span>`)}</dd></div>
      <div><dt>kind</dt><dd>${kind === "queue" ? "polls for its work" : html`is called at <${Text} value=${url} mono />`}</dd></div>
      <div><dt>load</dt><dd class="number">${load}</dd></div>
      <div><dt>heartbeat</dt><dd><${Moment} at=${last_heartbeat} /></dd></div>
    </dl>
  </li>`;
}
