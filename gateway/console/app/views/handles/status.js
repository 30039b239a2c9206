/** The status of a handle, in the colors of the statuses of runs. */

import { html } from "../../../vendor/ui.js";

export const STATUSES = ["Idle", "Queued", "Running", "Done", "Failed", "Cancelled"];

const LOOKS = {
  Idle: ["queued", "·"],
  Queued: ["queued", "○"],
  Running: ["running", "▶"],
  Done: ["succeeded", "✓"],
  Failed: ["failed", "✕"],
  Cancelled: ["cancelled", "⊘"],
};

/** @param {{ handle: import("../../../greenroom.js").HandleState }} props */
export function HandleStatus({ handle: { status, locked } }) {
  const [tone, sign] = LOOKS[status];
  return html`<span class="status ${tone}"><span aria-hidden="true">${sign}</span>${status}</span>
    ${locked && html` <span class="tag">locked</span>`}`;
}
