/** A new run: first the choice of its job, then the form. The address contains the job, and the run that the form begins with. */

import { html, useEffect, useMemo, useRef, useSignal } from "../../../vendor/ui.js";
import { Nothing, RunLink } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { focusHeading } from "../../state/focus.js";
import { client, live, may, role } from "../../state/session.js";
import { report } from "../../state/toasts.js";
import { Form } from "./form.js";
import { Choice, useJobs } from "./jobs.js";

/** @typedef {import("../../../greenroom.js").JobInfo} JobInfo */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/** @param {{ query: URLSearchParams }} props */
export function NewRun({ query }) {
  if (may("operator")) return html`<${Permitted} query=${query} />`;
  return html`<div class="title"><h1>New run</h1></div><p>Only the role operator and above can start runs. Your role is ${role.value}.</p>`;
}

/** @param {{ query: URLSearchParams }} props */
function Permitted({ query }) {
  const of = query.get("of");
  const { jobs, failed } = useJobs();
  const run = useRun(of);
  const wanted = query.get("job") ?? run?.job ?? null;
  const job = useKept(jobs?.find(({ name }) => name === wanted), wanted);
  useEffect(focusHeading, [job?.name]);
  return html`<section aria-labelledby="new-title">
    <div class="title">
      <h1 id="new-title">New run${job && html` of <${Text} value=${job.name} />`}</h1>
      ${job && html`<span class="faint">lane <${Text} value=${job.lane} /></span>`}
      <span class="spread"></span>
      ${job && html`<a class="button" href=${to("runs", [], { new: "1" })}>Choose another job</a>`}
    </div>
    ${of !== null && run && html`<p class="faint">It begins with what run <${RunLink} id=${run.id} short /> had.</p>`}
    ${of !== null && run === null && html`<p class="error-text" role="alert">The run that it should begin with could not be read.</p>`}
    ${jobs && wanted && !job && html`<p class="error-text" role="alert">There is no job <${Text} value=${wanted} />: choose another one.</p>`}
    ${jobs === null || run === undefined
      ? html`<${Nothing}>${failed ? "The jobs could not be read: open this page again." : "Reading…"}<//>`
      : job
      ? html`<${Form} key=${`${job.name} ${of}`} job=${job} run=${run ?? undefined} />`
      : html`<p>Choose its job. To start a flow, open it under <a href=${to("flows")}>Flows</a>.</p><${Choice} jobs=${jobs} of=${of} />`}
  </section>`;
}

/** The job of the form, also if the executor that has it leaves: what the person has written stays. @param {JobInfo | undefined} found @param {string | null} wanted */
function useKept(found, wanted) {
  const kept = useRef(found);
  if (found) kept.current = found;
  return kept.current?.name === wanted ? kept.current : undefined;
}

/** The run with this id: undefined until it is read, null if there is none. @param {string | null} id @returns {RunRecord | null | undefined} */
function useRun(id) {
  const read = useSignal(/** @type {{ id: string, run: RunRecord | null } | null} */ (null));
  const known = useMemo(() => (id === null ? null : live.runs.get(id)), [id]); // it has ended, so it stays as it is
  useEffect(() => {
    if (id === null || known) return;
    let open = true;
    report(() => client().getRun(id)).then((run) => open && (read.value = { id, run: run ?? null }));
    return () => void (open = false);
  }, [id]);
  return known !== undefined ? known : read.value?.id === id ? read.value.run : undefined;
}
