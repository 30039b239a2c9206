/** The status of a handle, in the colors of the statuses of runs. */

import { html } from "../../../vendor/ui.js";
import { Icon } from "../../parts/icon.js";

export const STATUSES = ["Idle", "Queued", "Running", "Done", "Failed", "Cancelled"];

const LOOKS = /** @type {const} */ ({
  Idle: ["queued", "minus"],
  Queued: ["queued", "circle"],
  Running: ["running", "play"],
  Done: ["succeeded", "tick"],
  Failed: ["failed", "cross"],
  Cancelled: ["cancelled", "none"],
});

/** @param {{ handle: import("../../../greenroom.js").HandleState }} props */
export function HandleStatus({ handle: { status, locked } }) {
  const [tone, sign] = LOOKS[status];
  return html`<span class="status ${tone}"><${Icon} name=${sign} />${status}</span>
    ${locked && html` <span class="tag">locked</span>`}`;
}
