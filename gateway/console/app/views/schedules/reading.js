/** The schedules that the token may see. */

import { html } from "../../../vendor/ui.js";
import { Text } from "../../parts/text.js";
import { useReading } from "../../state/reading.js";
import { client, limits, live } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").ScheduleRecord} ScheduleRecord */

/**
 * Live; but a token with limits receives no events of schedules, so for one they are read when the view opens, and when
 * `again` is called. `schedules` is null until then.
 * @returns {{ schedules: ScheduleRecord[] | null, again: () => void, note: any }}
 */
export function useSchedules() {
  const limited = limits.value !== null;
  const { value, error, again } = useReading(async () => (limited ? client().schedules.list() : null), []);
  if (!limited) return { schedules: live.schedules.value.map(([, schedule]) => schedule), again: () => {}, note: null };
  const note = error
    ? html`<p class="error-text" role="alert"><${Text} value=${error.message} /> <button onClick=${again}>Read again</button></p>`
    : html`<p class="faint">Your token has limits: this was read when the page opened. <button class="quiet" onClick=${again}>Read again</button></p>`;
  return { schedules: value, again, note };
}
