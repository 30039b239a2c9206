/** The flows, each with its latest version. */

import { html, useEffect, useMemo } from "../../../vendor/ui.js";
import { Moment, Nothing } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { Edit, EditRefused, mayEdit } from "./edit.js";
import { FlowList } from "./list.js";

/** @param {{ query: URLSearchParams }} props */
export function Flows({ query }) {
  const list = useMemo(() => new FlowList(), []);
  useEffect(() => {
    list.open();
    return () => list.close();
  }, [list]);
  const rows = list.rows.value;
  if (query.has("edit") && mayEdit()) return html`<div class="title"><h1>Flows</h1></div><${Edit} />`;
  return html`<div class="title">
      <h1>Flows</h1><span class="faint number">${list.total.value}</span>
      <span class="spread"></span>
      ${mayEdit() && html`<a class="button primary" href=${to("flows", [], { edit: "1" })}>New flow</a>`}
    </div>
    ${query.has("edit") && html`<${EditRefused} />`}
    ${list.problem.value && html`<p class="error-text" role="alert"><${Text} value=${list.problem.value} /></p>`}
    ${list.total.value === 0 && html`<${Nothing}>There are no flows yet.<//>`}
    ${rows.length > 0 &&
    html`<div class="card scrolling" tabindex="0" role="region" aria-label="Flows"><table>
      <thead><tr><th>Flow</th><th>Latest version</th><th>Added</th><th>Created</th><th>Runs</th></tr></thead>
      <tbody>${rows.map(
        ({ flow, latest }) => html`<tr key=${flow.id}>
          <td><a href=${to("flows", [flow.name])}><strong><${Text} value=${flow.name} /></strong></a>
            ${flow.description && html`<div class="faint"><${Text} value=${flow.description} /></div>`}</td>
          <td>${latest ? html`<span class="number">${latest.version}</span> <span class=${`version-status ${latest.status}`}>${latest.status}</span>` : html`<span class="faint">none</span>`}</td>
          <td>${latest && html`<${Moment} at=${latest.created_at} />`}</td>
          <td><${Moment} at=${flow.created_at} /></td>
          <td><a href=${to("runs", [], { flow: flow.name })}>show</a></td>
        </tr>`,
      )}</tbody>
    </table></div>`}
    ${rows.length < (list.total.value ?? 0) && html`<button onClick=${() => list.more()}>More</button>`}`;
}
