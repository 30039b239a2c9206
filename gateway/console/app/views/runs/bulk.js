/** Actions for the selected runs. A run that refuses does not stop the others; the message says how many did. */

import { OutcomeUnknown } from "../../../greenroom.js";
import { html, useMemo } from "../../../vendor/ui.js";
import { ask } from "../../parts/dialog.js";
import { Requests } from "../../state/requests.js";
import { attempt, toast, told } from "../../state/toasts.js";
import { client, may } from "../../state/session.js";
import { RERUN, RETRY, askToCancel } from "../run/actions.js";
import { canCancel, canRerun, canRetry } from "./filter.js";

const AT_ONCE = 100; // below the gateway's limit of commands in flight

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/** @param {{ runs: RunRecord[], clear: () => void }} props */
export function Bulk({ runs, clear }) {
  const requests = useMemo(() => new Requests(), []);
  if (!may("operator") || runs.length === 0) return null;
  const cancelling = runs.filter(canCancel);
  const rerunning = runs.filter(canRerun);
  const retrying = runs.filter(canRetry);
  const cancel = async () => {
    const answer = await askToCancel(`Cancel ${counted(cancelling.length)}?`, "Each selected run that has not ended is cancelled.");
    if (answer === null) return;
    const done = await attempt(() => each(cancelling, (run) => client().cancel(run.id, /** @type {"keep" | "delete"} */ (answer)), "cancelled"));
    if (done) clear();
  };
  /** @param {"rerun" | "retry"} how @param {RunRecord[]} chosen @param {string} body */
  const again = async (how, chosen, body) => {
    const label = how === "rerun" ? "Rerun" : "Retry";
    if (chosen.length > 1 && !(await ask({ title: `${label} ${counted(chosen.length)}?`, body, choices: [{ name: "yes", label }] }))) return;
    const one = async (/** @type {RunRecord} */ run) => {
      const submission = `${how} ${run.id}`;
      await client()[how](run.id, { requestId: requests.idOf(submission) });
      requests.answered(submission);
    };
    if (await attempt(() => each(chosen, one, "submitted again"))) clear();
  };
  return html`<div class="bulk" role="toolbar" aria-label="Selected runs">
    <strong aria-live="polite">${runs.length} selected</strong>
    <button class="danger" disabled=${cancelling.length === 0} onClick=${cancel}>Cancel ${cancelling.length || ""}</button>
    <button title=${RERUN} disabled=${rerunning.length === 0} onClick=${() => again("rerun", rerunning, RERUN)}>Rerun ${rerunning.length || ""}</button>
    <button title=${RETRY} disabled=${retrying.length === 0} onClick=${() => again("retry", retrying, RETRY)}>Retry ${retrying.length || ""}</button>
    <button class="quiet" onClick=${clear}>Select none</button>
  </div>`;
}

/** @param {number} count */
const counted = (count) => `${count} ${count === 1 ? "run" : "runs"}`;

/**
 * Send a command for each run, some at a time. Returns true once all are answered.
 * @param {RunRecord[]} runs
 * @param {(run: RunRecord) => Promise<unknown>} command
 * @param {string} done
 */
async function each(runs, command, done) {
  const errors = [];
  for (let start = 0; start < runs.length; start += AT_ONCE) {
    const results = await Promise.allSettled(runs.slice(start, start + AT_ONCE).map(command));
    errors.push(...results.flatMap((one) => (one.status === "rejected" ? [one.reason] : [])));
  }
  const count = runs.length - errors.length;
  if (count > 0) toast(`${counted(count)} ${done}`);
  const unknown = errors.filter((one) => one instanceof OutcomeUnknown);
  const refused = errors.filter((one) => !unknown.includes(one));
  if (refused.length > 0) toast(`${refused.length} refused: ${told(refused[0])}`, "error");
  if (unknown.length > 0) toast(`${unknown.length} unknown: ${told(unknown[0])}`, "error", { stays: true });
  return true;
}
