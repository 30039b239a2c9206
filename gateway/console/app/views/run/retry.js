/** When the next attempt of a run follows, as the event of the failed one tells. */

import { html } from "../../../vendor/ui.js";
import { Moment } from "../../parts/basic.js";
import { LongText } from "../../parts/text.js";
import { now, span } from "../../state/clock.js";

/** `suspension`: the event, if it was read. @param {{ run: import("../../../greenroom.js").RunRecord, suspension?: import("../../../greenroom.js").GreenroomEvent }} props */
export function NextAttempt({ run, suspension }) {
  if (suspension?.type !== "run_state_changed" || suspension.retry_after === undefined) {
    return html`<p>Attempt ${run.attempt} failed. It waits before the next one.</p>`;
  }
  const at = suspension.at + suspension.retry_after;
  const left = at - now.value;
  return html`<p>Attempt ${run.attempt} failed. Attempt ${run.attempt + 1} ${left > 0
      ? html`enters its lane at <${Moment} at=${at} />, in ${span(left)}.`
      : html`was due at <${Moment} at=${at} />.`}</p>
    ${suspension.error && html`<${LongText} value=${suspension.error} mono />`}`;
}
