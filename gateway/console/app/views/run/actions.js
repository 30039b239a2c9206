/** What a person can do with a run: cancel, rerun, retry, send a message. What the role does not permit is absent. */

import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { ask } from "../../parts/dialog.js";
import { visible } from "../../parts/text.js";
import { valueOf } from "../../parts/value.js";
import { ValueField } from "../../parts/valuefield.js";
import { go, to } from "../../state/address.js";
import { Requests } from "../../state/requests.js";
import { client, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { canCancel, canRerun, canRetry } from "../runs/filter.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

export const RERUN = "Submit it again: a new run with the same job, handle, lane, kind and parameters. What has ended stays as it is.";
export const RETRY = "The same as Rerun, but only for what has failed, timed out or was rejected.";

/** Whether to cancel, and what becomes of the files; null if not. @param {string} title @param {any} what */
export function askToCancel(title, what) {
  return ask({
    title,
    body: html`${what}
      <p>Keep files: those that it has finished stay, and can be downloaded. Delete files: they are deleted too. Unfinished files are
        always deleted.</p>`,
    choices: [
      { name: "keep", label: "Cancel, keep files", danger: true },
      { name: "delete", label: "Cancel, delete files", danger: true },
    ],
  });
}

/** @param {{ run: RunRecord }} props */
export function Actions({ run }) {
  const requests = useMemo(() => new Requests(), [run.id]);
  if (!may("operator")) return null;
  const cancel = async () => {
    const files = await askToCancel(`Cancel run …${run.id.slice(-8)}?`, html`<p>${visible(`It executes ${run.job} for the handle ${run.handle}.`)}</p>`);
    if (files) await attempt(() => client().cancel(run.id, /** @type {"keep" | "delete"} */ (files)), "the run is being cancelled");
  };
  /** @param {"rerun" | "retry"} how */
  const again = async (how) => {
    const ticket = await attempt(() => client()[how](run.id, { requestId: requests.idOf(how) }), "submitted again");
    if (!ticket) return;
    requests.answered(how);
    go(to("runs", [ticket.id]));
  };
  return html`<div class="actions">
    ${canCancel(run) && html`<button class="danger" onClick=${cancel}>Cancel</button>`}
    ${run.status === "cancelling" && html`<button disabled>Cancelling…</button>`}
    ${canRetry(run) && html`<button class="primary" title=${RETRY} onClick=${() => again("retry")}>Retry</button>`}
    ${canRerun(run) && html`<button title=${RERUN} onClick=${() => again("rerun")}>Rerun</button>`}
  </div>`;
}

/** A message to an interactive run. @param {{ run: RunRecord }} props */
export function Message({ run }) {
  const sent = useSignal(0);
  if (!may("operator") || !run.interactive) return null;
  const send = async (/** @type {any} */ event) => {
    event.preventDefault();
    const { value } = valueOf(String(new FormData(event.currentTarget).get("message")));
    const outcome = await attempt(() => client().inject(run.id, value), "the message is accepted");
    if (outcome) sent.value += 1;
  };
  return html`<form key=${sent.value} class="message" onSubmit=${send}>
    <${ValueField} name="message" label="Message" required />
    <button>Send</button>
  </form>`;
}
