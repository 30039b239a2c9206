/** The status of a handle, in the colors of the statuses of runs. */

import { hasEnded } from "../../../greenroom.js";
import { html } from "../../../vendor/ui.js";
import { Icon } from "../../parts/icon.js";

/** @typedef {import("../../../greenroom.js").HandleState} HandleState */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

export const STATUSES = ["Idle", "Queued", "Running", "Done", "Failed", "Cancelled"];

/** What a handle is of which the state has nothing. @type {HandleState} */
export const UNKNOWN = { status: "Idle", locked: false, active_run: null, waiting: [], params: null };

const LOOKS = /** @type {const} */ ({
  Idle: ["queued", "minus"],
  Queued: ["queued", "circle"],
  Running: ["running", "play"],
  Done: ["succeeded", "tick"],
  Failed: ["failed", "cross"],
  Cancelled: ["cancelled", "none"],
});

const OUTCOMES = /** @type {const} */ ({ succeeded: "Done", failed: "Failed", timed_out: "Failed", rejected: "Failed", cancelled: "Cancelled" });

/**
 * The status of a handle. The state forgets the outcome of a run after 1,000 newer ones; the runs in the store tell it.
 * @param {HandleState} handle
 * @param {RunRecord[]} runs of the handle, newest first
 * @returns {HandleState}
 */
export function withOutcome(handle, runs) {
  const last = runs.find((run) => hasEnded(run) && run.place !== null);
  if (handle.status !== "Idle" || !last) return handle;
  if (last.status === "cancelled" && last.started_at === null) return handle; // it was cancelled in the queue
  return { ...handle, status: OUTCOMES[/** @type {keyof OUTCOMES} */ (last.status)] };
}

/** @param {{ handle: HandleState }} props */
export function HandleStatus({ handle: { status, locked } }) {
  const [tone, sign] = LOOKS[status];
  return html`<span class="status ${tone}"><${Icon} name=${sign} />${status}</span>
    ${locked && html` <span class="tag">locked</span>`}`;
}
