/** What a person can do with a run: cancel, rerun, retry, send a message. What the role does not permit is absent. */

import { parseExact } from "../../../greenroom.js";
import { html, useSignal } from "../../../vendor/ui.js";
import { ask } from "../../parts/dialog.js";
import { go, to } from "../../state/address.js";
import { client, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { canCancel, canRerun, canRetry } from "../runs/filter.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/** @param {{ run: RunRecord }} props */
export function Actions({ run }) {
  if (!may("operator")) return null;
  const cancel = async () => {
    const files = await ask({
      title: "Cancel this run?",
      body: "Files that it has finished can be kept or deleted. Unfinished files are always deleted.",
      choices: [
        { name: "keep", label: "Cancel, keep files", danger: true },
        { name: "delete", label: "Cancel, delete files", danger: true },
      ],
    });
    if (files) await attempt(() => client().cancel(run.id, /** @type {"keep" | "delete"} */ (files)), "the run is being cancelled");
  };
  /** @param {"rerun" | "retry"} how */
  const again = async (how) => {
    const ticket = await attempt(() => client()[how](run.id), "submitted again");
    if (ticket) go(to("runs", [ticket.id]));
  };
  return html`<div class="actions">
    ${canCancel(run) && html`<button class="danger" onClick=${cancel}>Cancel</button>`}
    ${run.status === "cancelling" && html`<button disabled>Cancelling…</button>`}
    ${canRetry(run) && html`<button class="primary" onClick=${() => again("retry")}>Retry</button>`}
    ${canRerun(run) && html`<button onClick=${() => again("rerun")}>Rerun</button>`}
  </div>`;
}

/** A message to an interactive run. @param {{ run: RunRecord }} props */
export function Message({ run }) {
  const text = useSignal("");
  if (!may("operator") || !run.interactive) return null;
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const outcome = await attempt(() => client().inject(run.id, read(text.value)), "the message is accepted");
    if (outcome) text.value = "";
  };
  return html`<form class="message" onSubmit=${send}>
    <label for="message">Message</label>
    <input id="message" value=${text.value} placeholder="text, or JSON" onInput=${(/** @type {any} */ event) => (text.value = event.currentTarget.value)} />
    <button disabled=${!text.value}>Send</button>
  </form>`;
}

/** JSON, or else the text itself. @param {string} text */
function read(text) {
  try {
    return parseExact(text);
  } catch {
    return text;
  }
}
