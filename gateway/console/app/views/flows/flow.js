/** One flow: its versions, and the chosen one: its graph, a form to start it, its text to edit, or two compared. */

import { parseExact } from "../../../greenroom.js";
import { html, useEffect, useMemo, useRef, useSignal } from "../../../vendor/ui.js";
import { Moment, Nothing } from "../../parts/basic.js";
import { Differences } from "../../parts/editor.js";
import { Json } from "../../parts/json.js";
import { Text } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { useOnce } from "../../state/reading.js";
import { client, may } from "../../state/session.js";
import { FlowGraph } from "./drawing.js";
import { Edit, EditRefused, mayEdit } from "./edit.js";
import { onFlowChange } from "./list.js";
import { outline } from "./outline.js";
import { Start } from "./start.js";
import { toYaml } from "./yaml.js";

/** @typedef {import("../../../greenroom.js").VersionRow} VersionRow */

/** @param {{ names: string[], query: URLSearchParams }} props */
export function Flow({ names: [name], query }) {
  const versions = useSignal(/** @type {VersionRow[] | null} */ (null));
  const reads = useSignal(0);
  const problem = useSignal("");
  const sought = useSignal(""); // the query whose versions were read again, because one was missing
  const read = () =>
    client()
      .flows.versions(name)
      .then((found) => {
        versions.value = found.toReversed();
        reads.value += 1;
        problem.value = "";
      })
      .catch((error) => (problem.value = error.message));
  useEffect(() => {
    read();
    return onFlowChange((changed) => (changed === null || changed === name) && read());
  }, [name]);
  const known = versions.value ?? [];
  const latest = known.find(({ status }) => status === "published") ?? known[0];
  const row = query.get("version") ? named(known, query.get("version")) : latest;
  const missing = ["version", "against"].map((name) => query.get(name)).filter((one) => one && !named(known, one));
  const isMissing = versions.value !== null && missing.length > 0;
  useEffect(() => {
    if (isMissing) read().then(() => (sought.value = String(query))); // it can have been published just now
  }, [isMissing, String(query)]);
  const compared = [row?.version, Number(query.get("against"))];
  const canChange = known.some(({ version, status }) => status === "draft" && compared.includes(version));
  const shown = query.has("edit") ? "edit" : `${row?.id} ${canChange ? reads.value : ""}`;
  return html`<div class="title">
      <h1><${Text} value=${name} /></h1>
      <span class="spread"></span>
      <a class="button" href=${to("runs", [], { flow: name })}>Runs</a>
    </div>
    ${problem.value && html`<p class="error-text" role="alert"><${Text} value=${problem.value} /></p>`}
    ${versions.value !== null && known.length === 0 && html`<${Nothing}>The flow has no version yet.<//>`}
    ${isMissing && sought.value === String(query) &&
    missing.map((one) => html`<p key=${one} class="error-text" role="alert">The flow has no version <${Text} value=${one} />.</p>`)}
    ${known.length > 0 &&
    html`<div class="columns flow">
      <section class="card"><h2>Versions</h2><${Versions} name=${name} rows=${known} chosen=${row} /></section>
      ${row && html`<${Version} key=${`${query} ${shown}`} name=${name} row=${row} rows=${known} query=${query} />`}
    </div>`}`;
}

/** The version of this number. @param {VersionRow[]} rows @param {string | null} number as it is in the address */
const named = (rows, number) => rows.find(({ version }) => String(version) === number);

/** @param {{ name: string, rows: VersionRow[], chosen?: VersionRow }} props */
function Versions({ name, rows, chosen }) {
  return html`<ol class="versions">${rows.map(
    ({ id, version, status, created_at }) => html`<li key=${id}>
      <a href=${to("flows", [name], { version: String(version) })} aria-current=${id === chosen?.id ? "true" : undefined}>
        <span class="number">version ${version}</span> <span class=${`version-status ${status}`}>${status}</span> <${Moment} at=${created_at} />
      </a>
    </li>`,
  )}</ol>`;
}

/** @param {{ name: string, row: VersionRow, rows: VersionRow[], query: URLSearchParams }} props */
function Version({ name, row, rows, query }) {
  const first = useRef(row.id);
  const against = named(rows, query.get("against"));
  const { value: definitions, error: problem } = useOnce(() => definitionsOf(against ? [row, against] : [row]));
  if (problem) return html`<section class="card"><p class="error-text" role="alert"><${Text} value=${problem.message} /></p></section>`;
  if (definitions === null) return html`<section class="card"><${Nothing}>Loading…<//></section>`;
  const [definition, other] = definitions;
  if (query.has("edit") && mayEdit()) {
    const base = rows.find(({ id }) => id === first.current) ?? row; // another version can be the latest one by now
    return html`<${Edit} name=${name} base=${base} definition=${definition} />`;
  }
  return html`<div>
    <section class="card">
      <div class="title">
        <h2>Version ${row.version}</h2>
        <span class="spread"></span>
        ${rows.length > 1 && html`<${Compare} name=${name} row=${row} rows=${rows} against=${against} />`}
        ${mayEdit() && html`<a class="button" href=${to("flows", [name], { version: String(row.version), edit: "1" })}>Edit</a>`}
      </div>
      ${query.has("edit") && html`<${EditRefused} />`}
      ${against
        ? html`<${Differences} names=${[`Version ${against.version}`, `Version ${row.version}`]} before=${toYaml(other)} after=${toYaml(definition)} />`
        : html`<${Graph} definition=${definition} />`}
    </section>
    ${!against && may("operator") && row.status === "published" &&
    html`<section class="card"><h2>Start</h2><${Start} name=${name} version=${row.version} definition=${definition} /></section>`}
  </div>`;
}

/** The definitions of versions. @param {VersionRow[]} rows @returns {Promise<any[]>} */
async function definitionsOf(rows) {
  const found = await Promise.all(rows.map(({ id }) => client().flows.version(id)));
  return found.map(({ definition }) => parseExact(definition));
}

/** @param {{ name: string, row: VersionRow, rows: VersionRow[], against?: VersionRow }} props */
function Compare({ name, row, rows, against }) {
  const choose = (/** @type {any} */ event) => go(to("flows", [name], { version: String(row.version), against: event.currentTarget.value }));
  return html`<label>Compare with${" "}
    <select value=${against ? String(against.version) : ""} onChange=${choose}>
      <option value="">none</option>
      ${rows.filter(({ id }) => id !== row.id).map(({ id, version, status }) => html`<option key=${id} value=${version}>version ${version}, ${status}</option>`)}
    </select>
  </label>`;
}

/** @param {{ definition: any }} props */
function Graph({ definition }) {
  const chosen = useSignal("");
  const places = useMemo(() => outline(definition).places, [definition]);
  const node = places.find(({ path }) => path === chosen.value)?.node;
  return html`<${FlowGraph} definition=${definition} chosen=${chosen.value}
      onChoose=${(/** @type {string} */ path) => (chosen.value = chosen.value === path ? "" : path)} />
    ${node && html`<h3>Node <${Text} value=${chosen.value} /></h3><${Json} value=${node} name=${`node ${chosen.value}`} />`}`;
}
