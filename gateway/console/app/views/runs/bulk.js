/**
 * Actions for the selected runs. They reach only runs that the list has and the question has named. A run that refuses
 * does not stop the others, but a loss of the connection does; the message says how many runs each of these concerns.
 */

import { OutcomeUnknown } from "../../../greenroom.js";
import { html, useMemo } from "../../../vendor/ui.js";
import { ask } from "../../parts/dialog.js";
import { Text } from "../../parts/text.js";
import { Requests } from "../../state/requests.js";
import { attempt, toast, told } from "../../state/toasts.js";
import { client, connection, may } from "../../state/session.js";
import { RERUN, RETRY, askToCancel } from "../run/actions.js";
import { canCancel, canRerun, canRetry, workOf } from "./filter.js";

const AT_ONCE = 100; // below the gateway's limit of commands in flight
const NAMED = 100; // runs, in a question

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("../../../greenroom.js").Client} Client */

/**
 * @param {object} props
 * @param {RunRecord[]} props.runs the selected runs that the list has
 * @param {number} props.selected how many runs are selected
 * @param {(id: string) => boolean} props.lists whether the list has a run now
 * @param {(ids?: string[]) => void} props.deselect all runs, unless given
 */
export function Bulk({ runs, selected, lists, deselect }) {
  const requests = useMemo(() => new Requests(), []);
  if (!may("operator") || selected === 0) return null;
  const cancelling = runs.filter(canCancel);
  const rerunning = runs.filter(canRerun);
  const retrying = runs.filter(canRetry);
  /** @param {RunRecord[]} named @param {(client: Client, run: RunRecord) => Promise<unknown>} command @param {string} done */
  const send = async (named, command, done) => {
    const reached = named.filter(({ id }) => lists(id));
    if (reached.length < named.length) toast(`${counted(named.length - reached.length)} left the list meanwhile: nothing is sent for them`, "error");
    const ids = await attempt(() => each(reached, command, done));
    if (ids) deselect(ids);
  };
  const cancel = async () => {
    const what = html`<p>Each of these runs is cancelled.</p><${Named} runs=${cancelling} />`;
    const answer = await askToCancel(`Cancel ${counted(cancelling.length)}?`, what, cancelling);
    if (answer) await send(cancelling, (client, run) => client.cancel(run.id, /** @type {"keep" | "delete"} */ (answer)), "cancelled");
  };
  /** @param {"rerun" | "retry"} how @param {RunRecord[]} chosen @param {string} body */
  const again = async (how, chosen, body) => {
    const label = how === "rerun" ? "Rerun" : "Retry";
    const title = `${label} ${counted(chosen.length)}?`;
    const what = html`<p>${body}</p><${Named} runs=${chosen} />`;
    if (chosen.length > 1 && !(await ask({ title, body: what, choices: [{ name: "yes", label }] }))) return;
    const one = async (/** @type {Client} */ client, /** @type {RunRecord} */ run) => {
      const submission = `${how} ${run.id}`;
      await client[how](run.id, { requestId: requests.idOf(submission) });
      requests.answered(submission);
    };
    await send(chosen, one, "submitted again");
  };
  return html`<div class="bulk" role="toolbar" aria-label="Selected runs">
    <strong aria-live="polite">${runs.length < selected ? `${runs.length} of ${selected} selected are still in the list` : `${selected} selected`}</strong>
    <button class="danger" disabled=${cancelling.length === 0} onClick=${cancel}>Cancel ${cancelling.length || ""}</button>
    <button title=${RERUN} disabled=${rerunning.length === 0} onClick=${() => again("rerun", rerunning, RERUN)}>Rerun ${rerunning.length || ""}</button>
    <button title=${RETRY} disabled=${retrying.length === 0} onClick=${() => again("retry", retrying, RETRY)}>Retry ${retrying.length || ""}</button>
    <button class="quiet" onClick=${() => deselect()}>Select none</button>
  </div>`;
}

/** The runs that a question is about. @param {{ runs: RunRecord[] }} props */
function Named({ runs }) {
  return html`<ul class="named" tabindex="0" aria-label="Runs">
      ${runs.slice(0, NAMED).map(
        (run) => html`<li key=${run.id}><code>…${run.id.slice(-8)}</code> <${Text} value=${workOf(run)} /> of <${Text} value=${run.handle} /></li>`,
      )}
    </ul>
    ${runs.length > NAMED && html`<p>and ${(runs.length - NAMED).toLocaleString()} more</p>`}`;
}

/** @param {number} count */
export const counted = (count) => `${count.toLocaleString()} ${count === 1 ? "run" : "runs"}`;

/**
 * Send a command for each run, some at a time. After a loss of the connection, nothing more is sent, also when it is back.
 * Says what became of the commands, and returns the ids of the runs for which they were carried out.
 * @param {RunRecord[]} runs
 * @param {(client: Client, run: RunRecord) => Promise<unknown>} command
 * @param {string} done
 */
async function each(runs, command, done) {
  const sender = client(); // not that of another person who logs in meanwhile
  let lost = false;
  const stop = connection.subscribe((state) => void (lost ||= state?.status !== "connected"));
  const ids = [];
  const errors = [];
  let sent = 0;
  while (sent < runs.length && !lost) {
    const part = runs.slice(sent, sent + AT_ONCE);
    const results = await Promise.allSettled(part.map((run) => command(sender, run)));
    sent += part.length;
    ids.push(...part.filter((_, index) => results[index].status === "fulfilled").map(({ id }) => id));
    errors.push(...results.flatMap((one) => (one.status === "rejected" ? [one.reason] : [])));
  }
  stop();
  const unknown = errors.filter((one) => one instanceof OutcomeUnknown);
  const refused = errors.filter((one) => !unknown.includes(one));
  if (refused.length > 0) toast(`${refused.length} refused: ${told(refused[0])}`, "error");
  if (sent === runs.length && unknown.length === 0) {
    if (ids.length > 0) toast(`${counted(ids.length)} ${done}`);
    return ids;
  }
  const why = lost ? "The connection was lost" : told(unknown[0]);
  const numbers = `${counted(ids.length)} ${done}, ${unknown.length} unknown, ${runs.length - sent} not sent`;
  toast(`${why}: ${numbers}. Runs whose action was not carried out, or is unknown, are still selected.`, "error", { stays: true });
  return ids;
}
