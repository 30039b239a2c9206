/** One flow: its versions, and the graph of the chosen one. */

import { html, useEffect, useSignal } from "../../../vendor/ui.js";
import { Moment, Nothing } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { client } from "../../state/session.js";
import { FlowGraph } from "./drawing.js";
import { onFlowChange } from "./list.js";

/** @typedef {import("../../../greenroom.js").VersionRow} VersionRow */

/** @param {{ names: string[], query: URLSearchParams }} props */
export function Flow({ names: [name], query }) {
  const versions = useSignal(/** @type {VersionRow[] | null} */ (null));
  const problem = useSignal("");
  useEffect(() => {
    const read = () =>
      client()
        .flows.versions(name)
        .then((found) => (versions.value = found.toReversed()))
        .catch((error) => (problem.value = error.message));
    read();
    return onFlowChange((changed) => (changed === null || changed === name) && read());
  }, [name]);
  const known = versions.value ?? [];
  const wanted = Number(query.get("version"));
  const row = known.find(({ version }) => version === wanted) ?? known.find(({ status }) => status === "published") ?? known[0];
  return html`<div class="title">
      <h1><${Text} value=${name} /></h1>
      <span class="spread"></span>
      <a class="button" href=${to("runs", [], { flow: name })}>Runs</a>
    </div>
    ${problem.value && html`<p class="error-text" role="alert"><${Text} value=${problem.value} /></p>`}
    ${versions.value !== null && known.length === 0 && html`<${Nothing}>The flow has no version yet.<//>`}
    ${row &&
    html`<div class="columns flow">
      <section class="card"><h2>Versions</h2><${Versions} name=${name} rows=${known} chosen=${row} /></section>
      <${Version} key=${`${row.id} ${row.status}`} row=${row} />
    </div>`}`;
}

/** @param {{ name: string, rows: VersionRow[], chosen: VersionRow }} props */
function Versions({ name, rows, chosen }) {
  return html`<ol class="versions">${rows.map(
    ({ id, version, status, created_at }) => html`<li key=${id}>
      <a href=${to("flows", [name], { version: String(version) })} aria-current=${id === chosen.id ? "true" : undefined}>
        <span class="number">version ${version}</span> <span class=${`state ${status}`}>${status}</span> <${Moment} at=${created_at} />
      </a>
    </li>`,
  )}</ol>`;
}

/** @param {{ row: VersionRow }} props */
function Version({ row }) {
  const definition = useSignal(/** @type {any} */ (null));
  const problem = useSignal("");
  const chosen = useSignal("");
  useEffect(() => {
    client()
      .flows.version(row.id)
      .then((found) => (definition.value = JSON.parse(found.definition)))
      .catch((error) => (problem.value = error.message));
  }, []);
  return html`<section class="card">
    <h2>Version ${row.version}</h2>
    ${problem.value && html`<p class="error-text" role="alert"><${Text} value=${problem.value} /></p>`}
    ${definition.value &&
    html`<${FlowGraph} definition=${definition.value} chosen=${chosen.value} onChoose=${(/** @type {string} */ path) => (chosen.value = path)} />`}
  </section>`;
}
