/** The walk of one run through its flow: the graph with its states, and the node runs. */

import { parseExact } from "../../../greenroom.js";
import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { Elapsed, Moment, Nothing, Status } from "../../parts/basic.js";
import { Json } from "../../parts/json.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { useOnce } from "../../state/reading.js";
import { client } from "../../state/session.js";
import { FlowGraph } from "./drawing.js";
import { outline } from "./outline.js";
import { Signals } from "./signals.js";
import { ended, takes, walked } from "./walked.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */
/** @typedef {import("../../../greenroom.js").NodeRan} NodeRan */
/** @typedef {import("../../../greenroom.js").NodeRun} NodeRun */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const PAGE = 100;

/** @param {{ run: RunRecord, events: readonly GreenroomEvent[] }} props */
export function Walk({ run, events }) {
  const { value: definition, error: problem } = useOnce(() => definitionOf(run.id));
  const chosen = useSignal("");
  const { flow, version } = /** @type {{ flow: string, version: number }} */ (run.params);
  const walk = useMemo(() => walked(events, run.status), [events, run.status]);
  const rows = useMemo(() => numbered(events), [events]);
  const drawn = useMemo(() => definition && outline(definition), [definition]);
  // The run is rendered with each frame of events, of which most belong to other runs.
  const graph = useMemo(() => {
    const choose = (/** @type {string} */ path) => (chosen.value = chosen.value === path ? "" : path);
    return definition && html`<${FlowGraph} definition=${definition} walk=${walk} chosen=${chosen.value} onChoose=${choose} />`;
  }, [definition, walk, chosen.value]);
  const list = useMemo(() => {
    const isShown = (/** @type {string} */ node) => !chosen.value || node === chosen.value || node.startsWith(`${chosen.value}/`);
    return html`<${NodeRuns} run=${run.id} rows=${rows.filter(({ event }) => isShown(event.node))} links=${drawn?.links ?? []} />`;
  }, [run.id, rows, drawn, chosen.value]);
  return html`${drawn && html`<${Signals} run=${run} places=${drawn.places} states=${walk.states} />`}
    <section class="card">
      <h2>Flow <a href=${to("flows", [flow], { version: String(version) })}><${Text} value=${flow} />, version ${version}</a></h2>
      ${problem && html`<p class="error-text" role="alert"><${Text} value=${problem.message} /></p>`}
      ${graph}
    </section>
    <section class="card">
      <h2>Node runs ${chosen.value && html`of <${Text} value=${chosen.value} /> <button class="quiet" onClick=${() => (chosen.value = "")}>Show all</button>`}</h2>
      ${list}
    </section>`;
}

/** The definition that a run walks. @param {string} id */
async function definitionOf(id) {
  const task = await client().flows.task(id);
  return parseExact((await client().flows.version(task.version.id)).definition);
}

/** The events of node runs with their numbers: the run counts them from 1. @param {readonly GreenroomEvent[]} events */
function numbered(events) {
  return events.filter((event) => event.type === "node_ran").map((event, index) => ({ number: index + 1, event }));
}

/** @param {{ run: string, rows: { number: number, event: NodeRan }[], links: readonly import("./outline.js").Link[] }} props */
function NodeRuns({ run, rows, links }) {
  const count = useSignal(PAGE);
  if (rows.length === 0) return html`<${Nothing}>No node has ended yet.<//>`;
  const first = Math.max(0, rows.length - count.value);
  return html`<ol class="node-runs">
      ${rows.slice(first).reverse().map(({ number, event }) => html`<${Row} key=${number} run=${run} number=${number} event=${event} links=${links} />`)}
    </ol>
    ${first > 0 && html`<button class="quiet" onClick=${() => (count.value += 5 * PAGE)}>${first} earlier node runs</button>`}`;
}

/** @param {{ run: string, number: number, event: NodeRan, links: readonly import("./outline.js").Link[] }} props */
function Row({ run, number, event, links }) {
  const open = useSignal(false);
  const { node, branch, kind, visit, attempt, status, action, error, worker, at, started_at } = event;
  return html`<li><details onToggle=${(/** @type {any} */ toggled) => (open.value = toggled.currentTarget.open)}>
    <summary>
      <span class="faint number">${number}</span>
      <strong><${Text} value=${node} /></strong>
      ${branch !== undefined && html`<span class="tag">branch <${Text} value=${branch} /></span>`}
      <${Status} status=${ended(status)} />
      <span class="faint">${kind}${visit > 1 ? `, visit ${visit}` : ""}${attempt > 1 ? `, attempt ${attempt}` : ""}</span>
      ${action && takes(links, node, action, status) && html`<span>→ <${Text} value=${action} /></span>`}
      ${worker && html`<span class="faint">worker <${Text} value=${worker} /></span>`}
      <span class="spread"></span>
      <${Moment} at=${started_at} /> <${Elapsed} from=${started_at} to=${at} />
    </summary>
    ${open.value && html`<${Details} run=${run} number=${number} event=${event} />`}
  </details>
  ${error && html`<p class="error-text"><${Text} value=${error} lines /></p>`}</li>`;
}

/** Whether a node run and an event are about the same attempt. @param {NodeRun} row @param {NodeRan} event */
function isOf(row, event) {
  const { node, visit, attempt, branch = null } = event;
  return row.node === node && row.visit === visit && row.attempt === attempt && row.branch === branch;
}

/** What a node run was given and what it gave, which is read when it is opened. @param {{ run: string, number: number, event: NodeRan }} props */
function Details({ run, number, event }) {
  const { value: row, error: problem } = useOnce(async () => {
    const [found] = await client().flows.nodeRuns(run, { after: number - 1, limit: 1 });
    if (found && isOf(found, event)) return found;
    throw new Error("The run has so many events that the console does not know the number of this node run.");
  });
  if (problem) return html`<p class="error-text" role="alert"><${Text} value=${problem.message} /></p>`;
  if (!row) return html`<${Nothing}>Loading…<//>`;
  const { input, output, worker_url: url } = row;
  return html`<div class="columns">
    <div><h3>Input</h3><${Json} value=${input} name=${`the input of node run ${number}`} /></div>
    <div><h3>Output</h3><${Json} value=${output} name=${`the output of node run ${number}`} /></div>
  </div>
  ${url && html`<p class="faint">called at <${Text} value=${url} mono /></p>`}`;
}
