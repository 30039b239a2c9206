/** The nodes of the cluster, and which of them leads. A server that is not a node of one shows nothing. */

import { html } from "../../vendor/ui.js";
import { confirmed } from "../parts/dialog.js";
import { Text } from "../parts/text.js";
import { span } from "../state/clock.js";
import { useReading } from "../state/reading.js";
import { client, may } from "../state/session.js";
import { attempt } from "../state/toasts.js";

/** @typedef {import("../../greenroom.js").NodeInfo} NodeInfo */

/** The cluster; its value is null if there is none. */
export const useCluster = () => useReading(() => client().cluster.status(), ["node_changed", "leader_changed"]);

export function Cluster() {
  const { value: cluster, error } = useCluster();
  if (error !== null && error.code !== "conflict") return html`<p class="error-text"><${Text} value=${error.message} /></p>`;
  if (cluster === null) return null;
  return html`<section aria-labelledby="nodes-title">
    <div class="title">
      <h2 id="nodes-title">Nodes of the cluster</h2>
      ${may("admin") && cluster.leader && cluster.nodes.length > 1 && html`<button onClick=${() => stepDown(cluster)}>Let the leader step down</button>`}
    </div>
    <p class="faint">
      ${cluster.leader ? html`Term ${cluster.leader.term}. ` : "No leader is known. "}This page is connected to node <${Text} value=${cluster.node} mono />.
    </p>
    <ul class="grid">${cluster.nodes.map((node) => html`<${Node} key=${node.id} node=${node} />`)}</ul>
  </section>`;
}

/** @param {{ node: NodeInfo }} props */
function Node({ node: { id, address, role, version, seq, lag } }) {
  return html`<li class="card">
    <p class="card-head"><strong><${Text} value=${id} mono /></strong> <span class="state ${role}">${role}</span></p>
    <dl class="about">
      <div><dt>address</dt><dd><${Text} value=${address} mono /></dd></div>
      <div><dt>version</dt><dd><${Text} value=${version} /></dd></div>
      <div><dt>last event</dt><dd class="number">${seq.toLocaleString()}</dd></div>
      <div><dt>behind by</dt><dd class="number">${span(lag)}</dd></div>
    </dl>
  </li>`;
}

/** @param {import("../../greenroom.js").ClusterInfo} cluster */
async function stepDown({ leader }) {
  const body = html`<p>
    Node <${Text} value=${leader?.id} mono /> hands the leadership over to the follower that has the most events, and continues as
    a follower.
  </p>`;
  if (await confirmed({ title: "Let the leader step down?", body, label: "Step down" })) {
    await attempt(() => client().cluster.stepDown(), "another node takes over");
  }
}
