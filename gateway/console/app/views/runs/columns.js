/** The columns of the list of runs. People choose theirs; the browser keeps the choice. */

import { html, signal } from "../../../vendor/ui.js";
import { Elapsed, FilterLink, Moment, Progress, RunLink, Status, Tags } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {{ name: string, title: string, width: string, cell: (run: RunRecord) => any }} Column */

const KEY = "greenroom.columns";
const USUAL = ["status", "job", "handle", "lane", "created", "took", "progress", "reason"];

/** @type {Column[]} */
export const COLUMNS = [
  { name: "id", title: "Run", width: "7rem", cell: (run) => html`<${RunLink} id=${run.id} short tabindex="-1" />` },
  { name: "status", title: "Status", width: "8rem", cell: (run) => html`<${Status} status=${run.status} />` },
  { name: "job", title: "Job", width: "minmax(7rem, 1.2fr)", cell: (run) => html`<${Text} value=${run.job} />` },
  {
    name: "handle",
    title: "Handle",
    width: "minmax(7rem, 1.2fr)",
    cell: (run) => html`<${FilterLink} query=${{ handle: run.handle }} value=${run.handle} tabindex="-1" />`,
  },
  {
    name: "lane",
    title: "Lane",
    width: "minmax(5rem, 0.7fr)",
    cell: (run) => html`<${FilterLink} query=${{ lane: run.lane }} value=${run.lane} tabindex="-1" />`,
  },
  { name: "tags", title: "Tags", width: "minmax(7rem, 1.2fr)", cell: (run) => html`<${Tags} tags=${run.tags} tabindex="-1" />` },
  { name: "created", title: "Created", width: "9.5rem", cell: (run) => html`<${Moment} at=${run.created_at} />` },
  { name: "started", title: "Started", width: "9.5rem", cell: (run) => html`<${Moment} at=${run.started_at} />` },
  {
    name: "took",
    title: "Time",
    width: "6.5rem",
    cell: (run) => html`<${Elapsed} from=${run.started_at} to=${run.ended_at} />`,
  },
  { name: "attempt", title: "Attempt", width: "5rem", cell: (run) => html`<span class="number">${run.attempt}</span>` },
  { name: "priority", title: "Priority", width: "5rem", cell: (run) => html`<span class="number">${run.priority}</span>` },
  { name: "progress", title: "Progress", width: "9rem", cell: (run) => html`<${Progress} run=${run} />` },
  {
    name: "reason",
    title: "Reason or error",
    width: "minmax(8rem, 2fr)",
    cell: (run) => html`<${Text} value=${run.error ?? run.reason ?? run.waiting_for ?? ""} />`,
  },
];

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
