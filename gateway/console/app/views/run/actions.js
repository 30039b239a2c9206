/** What a person can do with a run: cancel, rerun, retry, send a message. What the role does not permit is absent. */

import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { ask } from "../../parts/dialog.js";
import { visible } from "../../parts/text.js";
import { valueOf } from "../../parts/value.js";
import { ValueField } from "../../parts/valuefield.js";
import { go, to } from "../../state/address.js";
import { Requests } from "../../state/requests.js";
import { client, live, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { canCancel, canRerun, canRetry, workOf } from "../runs/filter.js";
import { nameOf } from "../runs/name.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

export const RERUN = "Submit it again: a new run with the same job, handle, lane, kind and parameters. What has ended stays as it is.";
export const RETRY = "The same as Rerun, but only for what has failed, timed out or was rejected.";
const EDIT = "Fill in the form of a new run with its job, handle, lane, parameters, tags and priority.";

/**
 * Whether to cancel, and what becomes of the files; null if not.
 * @param {string} title @param {any} what @param {readonly RunRecord[]} runs what is cancelled
 */
export function askToCancel(title, what, runs) {
  const ids = new Set(runs.map(({ id }) => id));
  const isChild = (/** @type {RunRecord} */ { id, parent, ended_at }) => parent !== null && ids.has(parent) && ended_at === null && !ids.has(id);
  const children = [...live.runs.values()].filter(isChild).length;
  return ask({
    title,
    body: html`${what}
      ${children > 0 && html`<p>${children === 1 ? "1 pending child run is" : `${children.toLocaleString()} pending child runs are`} cancelled too.</p>`}
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
    const what = html`<p>${visible(`It executes ${workOf(run)} for the handle ${run.handle}.`)}</p>`;
    const files = await askToCancel(`Cancel run …${run.id.slice(-8)}?`, what, [run]);
    if (files) await attempt(() => client().cancel(run.id, /** @type {"keep" | "delete"} */ (files)), `${nameOf(run)} is being cancelled`);
  };
  /** @param {"rerun" | "retry"} how */
  const again = async (how) => {
    const ticket = await attempt(() => client()[how](run.id, { requestId: requests.idOf(how) }), `${nameOf(run)} is submitted again`);
    if (!ticket) return;
    requests.answered(how);
    go(to("runs", [ticket.id]));
  };
  return html`<div class="actions">
    ${canCancel(run) && html`<button class="danger" onClick=${cancel}>Cancel</button>`}
    ${run.status === "cancelling" && html`<button disabled>Cancelling…</button>`}
    ${canRetry(run) && html`<button class="primary" title=${RETRY} onClick=${() => again("retry")}>Retry</button>`}
    ${canRerun(run) && run.job !== "flow" && html`<a class="button" title=${EDIT} href=${to("runs", [], { new: "1", of: run.id })}>Edit and rerun</a>`}
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
    const outcome = await attempt(() => client().inject(run.id, value), `the message for ${nameOf(run)} is accepted`);
    if (outcome) sent.value += 1;
  };
  return html`<form key=${sent.value} class="message" onSubmit=${send}>
    <${ValueField} name="message" label="Message" required />
    <button>Send</button>
  </form>`;
}
