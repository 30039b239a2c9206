/** The machines in numbers: executors with their slots, the nodes of the cluster, and workers. */

import { html } from "../../../vendor/ui.js";
import { Use } from "../../parts/limit.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { live } from "../../state/session.js";
import { useCluster } from "../cluster.js";

/** @param {{ workers: readonly import("../../../greenroom.js").WorkerState[] }} props */
export function Machines({ workers }) {
  const executors = live.executors.value;
  const cluster = useCluster().value;
  if (executors.length === 0 && workers.length === 0 && cluster === null) return null;
  const online = workers.filter(({ status }) => status === "online").length;
  return html`<section class="card" aria-labelledby="machines-title">
    <h2 id="machines-title">Machines</h2>
    <ul class="entries">
      ${executors.map(([id, executor]) => html`<${Executor} key=${id} id=${id} executor=${executor} />`)}
      ${cluster?.nodes.map(
        ({ id, role }) => html`<li key=${`node ${id}`}>
          <a href=${to("executors")}>node <${Text} value=${id} mono /></a> <span class="state">${role}</span>
        </li>`,
      )}
      ${workers.length > 0 && html`<li><a href=${to("workers")}>workers</a> <span class="number">${online} of ${workers.length} online</span></li>`}
    </ul>
  </section>`;
}

/** @param {{ id: string, executor: import("../../../greenroom.js").ExecutorState }} props */
function Executor({ id, executor: { status, slots } }) {
  const used = live.survey.value.executing.get(id)?.length ?? 0;
  return html`<li>
    <a href=${to("executors")}>executor <${Text} value=${id} mono /></a> <span class="state ${status}">${status}</span>
    ${slots === null ? html`<span class="number">${used} executing</span>` : html`<${Use} used=${used} limit=${slots} />`}
  </li>`;
}
