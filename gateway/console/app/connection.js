/** How the connection stands: connected, or when the next attempt begins and why the last one failed. */

import { html } from "../vendor/ui.js";
import { visible } from "./parts/text.js";
import { clock } from "./state/clock.js";
import { connection, live } from "./state/session.js";

export function Connection() {
  const state = connection.value;
  if (state?.status !== "reconnecting") {
    const seq = live.counts.value?.seq ?? 0;
    return html`<span class="connection connected" role="status" title=${`following the events; the last one is ${seq}`}>
      <span class="dot" aria-hidden="true"></span><span class="label">live</span>
    </span>`;
  }
  clock.value; // renders again each second
  const wait = Math.max(0, Math.ceil((state.retryAt - Date.now()) / 1000));
  return html`<span class="connection lost" role="status" title=${visible(state.reason)}>
    <span class="dot" aria-hidden="true"></span>
    <span class="label">reconnecting${wait > 0 ? ` in ${wait} s` : "…"}</span>
  </span>`;
}
