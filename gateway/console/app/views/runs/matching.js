/** Actions for all runs that match the filter of the list, also those that it has not loaded. The server finds them. */

import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { ask } from "../../parts/dialog.js";
import { Requests } from "../../state/requests.js";
import { client, may } from "../../state/session.js";
import { attempt, toast } from "../../state/toasts.js";
import { askToCancel } from "../run/actions.js";
import { counted } from "./bulk.js";
import { CANCELLABLE, ENDED, FAILED, optionsOf } from "./filter.js";

const USUAL = 1_000; // runs of one action
const MOST = 100_000; // if more than the usual number were asked for

/** @typedef {import("./filter.js").RunFilter} RunFilter */
/** @typedef {"cancel" | "rerun" | "retry"} How */

const ACTIONS = /** @type {const} */ ({
  cancel: { label: "Cancel", call: "cancelMany", statuses: CANCELLABLE, done: "cancelled" },
  rerun: { label: "Rerun", call: "rerunMany", statuses: ENDED, done: "submitted again" },
  retry: { label: "Retry", call: "retryMany", statuses: FAILED, done: "submitted again" },
});

/** `filter`: one that the server knows too, so not a text. @param {{ filter: RunFilter, query: string }} props */
export function AllThatMatch({ filter, query }) {
  const requests = useMemo(() => new Requests(), []);
  const busy = useSignal(false);
  if (!may("operator") || query === "" || filter.text || filter.problems.length > 0) return null;
  const act = async () => {
    const counts = await sent(() => countedBy(filter));
    if (counts) await chooseFrom(counts);
  };
  /** @template T @param {() => Promise<T>} command @param {(result: T) => string} [done] */
  const sent = async (command, done) => {
    busy.value = true;
    const result = await attempt(command, done);
    busy.value = false;
    return result;
  };
  /** @param {Map<How, number>} counts */
  const chooseFrom = async (counts) => {
    if (counts.size === 0) return toast("No run that matches can be cancelled or submitted again.");
    const choices = [...counts].map(([how, count]) => ({ name: how, label: `${ACTIONS[how].label} ${count.toLocaleString()}`, danger: how === "cancel" }));
    const body = html`<p>These are all runs that match the filter now, also those that the list has not loaded.</p>
      ${counts.has("rerun") && html`<p>Rerun: each run that has ended is submitted again, as a new run with the same job, handle, lane, kind and parameters. The new runs wait in their handles.</p>`}
      ${counts.has("retry") && html`<p>Retry: the same, only for runs that failed, timed out or were rejected.</p>`}`;
    const how = /** @type {How | null} */ (await ask({ title: "All runs that match", body, choices }));
    if (how !== null) await carryOut(how, counts.get(how) ?? 0);
  };
  /** @param {How} how @param {number} count */
  const carryOut = async (how, count) => {
    const { call, statuses, done } = ACTIONS[how];
    const options = { ...optionsOf(filter, statuses), limit: count > USUAL ? MOST : USUAL };
    const submission = `${how} ${query}`;
    const files = how === "cancel" ? await askToCancel(`Cancel ${counted(count)}?`, html`<p>Each run that matches and has not ended is cancelled, and its pending child runs too.</p>`, []) : "keep";
    if (files === null) return;
    const own = how === "cancel" ? { files: /** @type {"keep" | "delete"} */ (files) } : { requestId: requests.idOf(submission) };
    const result = await sent(() => client()[call]({ ...options, ...own }), (result) => `${counted(result.done)} ${done}`);
    if (!result) return;
    requests.answered(submission);
    if (result.refused > 0) toast(`${result.refused.toLocaleString()} refused: ${result.refusals[0]?.message}`, "error");
  };
  return html`<button class="quiet" onClick=${act} title="Cancel, rerun or retry all runs that match the filter">
    ${busy.value ? "All that match: waiting…" : "All that match…"}
  </button>`;
}

/** How many runs that match each action is for; without those that it is for none of. @param {RunFilter} filter */
async function countedBy(filter) {
  /** @type {Map<How, number>} */
  const counts = new Map();
  for (const how of /** @type {How[]} */ (Object.keys(ACTIONS))) {
    const { call, statuses } = ACTIONS[how];
    const options = optionsOf(filter, statuses);
    if (options === null) continue;
    const { matched } = await client()[call]({ ...options, dryRun: true });
    if (matched > 0) counts.set(how, matched);
  }
  return counts;
}
