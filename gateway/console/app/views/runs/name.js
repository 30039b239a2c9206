/** A run, named so that a person knows whose it is: by the end of its id, its job or flow, and its handle. */

import { html } from "../../../vendor/ui.js";
import { HandleLink, RunLink } from "../../parts/basic.js";
import { Text, visible } from "../../parts/text.js";
import { live } from "../../state/session.js";
import { workOf } from "./filter.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/** `run`: its record, or the id of a run that the state may have. @param {{ run: RunRecord | string }} props */
export function NamedRun({ run }) {
  const id = typeof run === "string" ? run : run.id;
  const record = typeof run === "string" ? live.runs.get(run) : run;
  return html`<span class="named-run">
    <${RunLink} id=${id} short />${record && html` <${Text} value=${workOf(record)} /> of <${HandleLink} name=${record.handle} />`}
  </span>`;
}

/** Several runs, of which the first ones are named. @param {{ runs: readonly (RunRecord | string)[], most: number }} props */
export function NamedRuns({ runs, most }) {
  const more = runs.length - most;
  return html`${runs.slice(0, most).map((run, index) => html`${index > 0 && ", "}<${NamedRun} run=${run} />`)}${more > 0 && ` and ${more.toLocaleString()} more`}`;
}

/** The same in a text, such as a message. @param {RunRecord} run */
export const nameOf = (run) => visible(`run …${run.id.slice(-8)} (${workOf(run)} of ${run.handle})`);

/** A text of the engine in which the ids of runs are short, and links. @param {{ value: string }} props */
export function TextWithRuns({ value }) {
  const parts = value.split(/\b([0-9a-f]{32})\b/); // every second part is an id
  return parts.map((part, index) => (index % 2 ? html`<${RunLink} key=${index} id=${part} short />` : html`<${Text} key=${index} value=${part} />`));
}
