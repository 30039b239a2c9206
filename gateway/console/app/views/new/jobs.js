/** The jobs that can be submitted, and the choice of one. */

import { html, useEffect, useMemo, useSignal } from "../../../vendor/ui.js";
import { Nothing } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { onReturn } from "../../state/reading.js";
import { client, limits, live } from "../../state/session.js";
import { report } from "../../state/toasts.js";
import { inBrief } from "./schema.js";

/** @typedef {import("../../../greenroom.js").JobInfo} JobInfo */

const PAGE = 100;

/** The jobs; null until they are read. They are read again when an executor brings or takes one. */
export function useJobs() {
  const jobs = useSignal(/** @type {JobInfo[] | null} */ (null));
  const failed = useSignal(false);
  const executors = live.executors.value;
  const brought = useMemo(() => [...new Set(executors.flatMap(([, one]) => one.jobs))].sort().join("\n"), [executors]);
  useEffect(() => {
    let open = true;
    const read = async () => {
      const found = await report(() => client().listJobs());
      if (!open) return;
      failed.value = found === undefined;
      jobs.value = found ?? jobs.peek();
    };
    read();
    const ignoreReturn = onReturn(() => void (failed.peek() && read()));
    return () => {
      open = false;
      ignoreReturn();
    };
  }, [brought]);
  return { jobs: jobs.value, failed: failed.value };
}

/** The address of the form for a job. @param {string} job @param {string | null} of the run whose parameters it begins with */
const formOf = (job, of) => to("runs", [], { new: "1", job, of });

/** @param {{ jobs: JobInfo[], of: string | null }} props */
export function Choice({ jobs, of }) {
  const text = useSignal("");
  const shown = useSignal(PAGE);
  const wanted = text.value.trim().toLowerCase();
  const found = jobs.filter(({ name, lane }) => `${name} ${lane}`.toLowerCase().includes(wanted));
  /** @param {Event} event */
  const open = (event) => {
    event.preventDefault();
    if (wanted !== "" && found.length > 0) go(formOf(found[0].name, of));
  };
  if (jobs.length === 0) {
    return html`<${Nothing}>${limits.value ? "There is no job that your token may submit." : "The server has no jobs, and no executor is attached that has one."}<//>`;
  }
  return html`<form class="title" role="search" onSubmit=${open}>
      <label class="field"><span>job or lane</span>
        <input name="find" autocomplete="off" spellcheck=${false} value=${text.value} onInput=${(/** @type {any} */ event) => (text.value = event.currentTarget.value)} />
      </label>
      <span class="faint">Enter chooses the first.</span>
    </form>
    ${found.length === 0 && html`<${Nothing}>No job contains this text.<//>`}
    <ul class="grid jobs">
      ${found.slice(0, shown.value).map(
        ({ name, lane, params }) => html`<li key=${name} class="card">
          <a href=${formOf(name, of)}><strong><${Text} value=${name} /></strong></a>
          <span class="faint">lane <${Text} value=${lane} /></span>
          <div class="faint"><${Text} value=${inBrief(params)} /></div>
        </li>`,
      )}
    </ul>
    ${found.length > shown.value && html`<button onClick=${() => (shown.value += PAGE)}>${found.length - shown.value} more</button>`}`;
}
