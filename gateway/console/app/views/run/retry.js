/** When the next attempt of a run follows, as the event of the failed one tells. */

import { html } from "../../../vendor/ui.js";
import { Moment } from "../../parts/basic.js";
import { LongText } from "../../parts/text.js";
import { now, span } from "../../state/clock.js";

/** @param {{ run: import("../../../greenroom.js").RunRecord, events: readonly import("../../../greenroom.js").GreenroomEvent[] }} props */
export function NextAttempt({ run, events }) {
  if (run.status !== "suspended" || run.waiting_for !== "retry") return null;
  const failure = events.findLast((event) => event.type === "run_state_changed");
  if (failure?.retry_after === undefined) return null;
  const at = failure.at + Number(failure.retry_after);
  const left = at - now.value;
  return html`<section class="card waits" aria-labelledby="retry-title">
    <h2 id="retry-title">Next attempt</h2>
    <p>Attempt ${failure.attempt} failed. Attempt ${failure.attempt + 1} ${left > 0
      ? html`enters its lane at <${Moment} at=${at} />, in ${span(left)}.`
      : html`was due at <${Moment} at=${at} />.`}</p>
    ${failure.error && html`<${LongText} value=${failure.error} mono />`}
  </section>`;
}
