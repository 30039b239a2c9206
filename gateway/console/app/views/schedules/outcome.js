/** How the last firing of a schedule went: its run with its status, or why the run was refused. */

import { html, useEffect, useState } from "../../../vendor/ui.js";
import { Moment, RunLink, Status } from "../../parts/basic.js";
import { client, live } from "../../state/session.js";
import { TextWithRuns } from "../runs/name.js";

/** @typedef {import("../../../greenroom.js").ScheduleRecord} ScheduleRecord */

/** @param {{ schedule: ScheduleRecord }} props */
export function Outcome({ schedule: { last_fired, last_run, last_error } }) {
  if (last_fired === null) return html`<span class="faint">not yet</span>`;
  return html`<span>
    <${Moment} at=${last_fired} />${" "}
    ${last_run === null
      ? html`<span class="error-text">refused <${TextWithRuns} value=${last_error ?? ""} /></span>`
      : html`<${RunOf} key=${last_run} id=${last_run} />`}
  </span>`;
}

/** @param {{ id: string }} props */
function RunOf({ id }) {
  live.frame.value;
  const [stored, setStored] = useState("");
  const known = live.runs.get(id)?.status;
  useEffect(() => {
    if (known === undefined) client().getRun(id).then(({ status }) => setStored(status), () => setStored("deleted"));
  }, [known === undefined]);
  const status = known ?? stored;
  return html`<${RunLink} id=${id} short /> ${status && html`<${Status} status=${status} />`}`;
}
