/** The columns of the list of runs. People choose theirs; the browser keeps the choice. */

import { hasEnded } from "../../../greenroom.js";
import { html, signal } from "../../../vendor/ui.js";
import { Elapsed, FilterLink, HandleLink, Moment, Progress, RunLink, Status, Tags } from "../../parts/basic.js";
import { Icon } from "../../parts/icon.js";
import { Text, visible } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { flowOf, workOf } from "./filter.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {{ name: string, title: string, width: string, label?: string, cell: (run: RunRecord) => any }} Column `label`: names the cell in a card, on a phone */

const KEY = "greenroom.columns";
const USUAL = ["status", "job", "handle", "lane", "created", "took", "reason"];

/** @type {Column[]} */
export const COLUMNS = [
  { name: "id", title: "Run", width: "7rem", cell: (run) => html`<${RunLink} id=${run.id} short tabindex="-1" />` },
  { name: "status", title: "Status", width: "8rem", cell: (run) => html`<${Status} status=${run.status} />` },
  { name: "job", title: "Job", label: "job", width: "minmax(7rem, 1.2fr)", cell: (run) => html`<${Text} value=${workOf(run)} />` },
  {
    name: "handle",
    title: "Handle",
    label: "of",
    width: "minmax(7rem, 1.2fr)",
    cell: (run) => html`<${HandleLink} name=${run.handle} tabindex="-1" /> <${OfHandle} name=${run.handle} />`,
  },
  { name: "flow", title: "Flow", label: "flow", width: "minmax(5rem, 0.8fr)", cell: (run) => html`<${FlowOf} name=${flowOf(run)} />` },
  {
    name: "lane",
    title: "Lane",
    label: "lane",
    width: "minmax(5rem, 0.7fr)",
    cell: (run) => html`<${FilterLink} query=${{ lane: run.lane }} value=${run.lane} tabindex="-1" />`,
  },
  { name: "tags", title: "Tags", width: "minmax(7rem, 1.2fr)", cell: (run) => html`<${Tags} tags=${run.tags} tabindex="-1" />` },
  { name: "created", title: "Created", label: "created", width: "9.5rem", cell: (run) => html`<${Moment} at=${run.created_at} />` },
  { name: "started", title: "Started", label: "started", width: "9.5rem", cell: (run) => html`<${Moment} at=${run.started_at} />` },
  {
    name: "took",
    title: "Time",
    label: "for",
    width: "6.5rem",
    cell: (run) => html`<${Elapsed} from=${run.started_at} to=${run.ended_at} />`,
  },
  { name: "attempt", title: "Attempt", label: "attempt", width: "5rem", cell: (run) => html`<span class="number">${run.attempt}</span>` },
  { name: "priority", title: "Priority", label: "priority", width: "5rem", cell: (run) => html`<span class="number">${run.priority}</span>` },
  { name: "progress", title: "Progress", width: "9rem", cell: (run) => html`<${Progress} run=${run} brief />` },
  { name: "reason", title: "Reason or error", width: "minmax(12rem, 3fr)", cell: (run) => html`<${Reason} run=${run} />` },
];

/** Shows only the runs of a handle. @param {{ name: string }} props */
function OfHandle({ name }) {
  const label = `Only runs of ${visible(name)}`;
  return html`<a class="only" tabindex="-1" href=${to("runs", [], { handle: name })} aria-label=${label} title=${label}><${Icon} name="filter" /></a>`;
}

/** @param {{ name: string | null }} props */
function FlowOf({ name }) {
  return name && html`<a tabindex="-1" href=${to("flows", [name])}><${Text} value=${name} /></a>`;
}

/** Why a run stands as it does; of one that executes, its progress. @param {{ run: RunRecord }} props */
function Reason({ run }) {
  const text = run.error ?? run.reason ?? run.waiting_for ?? "";
  if (run.status === "queued" && run.waiting_for === "time") return html`not before <${Moment} at=${run.not_before} />`;
  return html`${!hasEnded(run) && !chosen.value.has("progress") && html`<${Progress} run=${run} brief /> `}
    ${text && html`<span title=${visible(text)}><${Text} value=${text} /></span>`}`;
}

export const chosen = signal(stored());

function stored() {
  const names = (localStorage.getItem(KEY) ?? "").split(" ").filter((name) => COLUMNS.some((one) => one.name === name));
  return new Set(names.length > 0 ? names : USUAL);
}

/** Show or hide a column; one always remains. @param {string} name */
export function toggle(name) {
  const next = new Set(chosen.value);
  if (!next.delete(name)) next.add(name);
  if (next.size === 0) return;
  chosen.value = next;
  localStorage.setItem(KEY, [...next].join(" "));
}
