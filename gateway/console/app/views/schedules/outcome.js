/** How the last firing of a schedule went: its run with its status, or why the run was refused. */

import { html, signal, useEffect, useState } from "../../../vendor/ui.js";
import { Moment, RunLink, Status } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { client, live } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").ScheduleRecord} ScheduleRecord */

/**
 * Why the last firing of a schedule was refused, by its name. The record has only that it was; the event has the reason.
 * @type {import("../../../vendor/ui.js").Signal<ReadonlyMap<string, string>>}
 */
const refusals = signal(new Map());

/** Note the refused firings while a view is open. */
export function useRefusals() {
  useEffect(
    () =>
      client().onEvent(
        (event) => {
          if (event.type !== "schedule_fired" || event.triggered) return;
          const next = new Map(refusals.peek());
          if (event.refused) next.set(event.schedule, `${event.refused}: ${event.error ?? ""}`);
          else next.delete(event.schedule);
          refusals.value = next;
        },
        { types: ["schedule_fired"] },
      ),
    [],
  );
}

/** @param {{ schedule: ScheduleRecord }} props */
export function Outcome({ schedule: { name, last_fired, last_run } }) {
  if (last_fired === null) return html`<span class="faint">not yet</span>`;
  return html`<span>
    <${Moment} at=${last_fired} />${" "}
    ${last_run === null
      ? html`<span class="error-text">refused <${Text} value=${refusals.value.get(name) ?? ""} /></span>`
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
