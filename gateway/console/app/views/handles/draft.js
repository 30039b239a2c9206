/** The draft parameters of a handle, as JSON that a person edits, and the runs that are started with it. */

import { hasEnded, parseExact, writeExact } from "../../../greenroom.js";
import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { RunLink } from "../../parts/basic.js";
import { InvisibleLetters, Text, visible } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { Requests } from "../../state/requests.js";
import { client, limits, live, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { takeKept, useUnsaved } from "../../state/unsaved.js";
import { useJobs } from "../new/jobs.js";
import { BUSY } from "./busy.js";

/** @typedef {import("../../../greenroom.js").HandleState} HandleState */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {"reject" | "queue" | "replace" | "join"} OnConflict */

/** A token that is limited to lanes or jobs only cannot change drafts. */
const mayEdit = () => may("operator") && (limits.value === null || limits.value.handles !== undefined);

/** `last`: the run of the handle that was created last. @param {{ name: string, handle: HandleState, last?: RunRecord }} props */
export function Draft({ name, handle, last }) {
  const stored = useMemo(() => written(handle.params), [handle.params]);
  const offered = useMemo(() => (stored === "" && may("operator") ? written(last?.params ?? null) : ""), [stored, last?.params]);
  const edited = useSignal(useMemo(() => /** @type {{ text: string, of: string } | null} */ (takeKept()), []));
  const sending = useSignal(false);
  const refusal = useSignal("");
  const requests = useMemo(() => new Requests(), [name]);

  const offers = edited.value === null && !["", "{}"].includes(offered);
  const text = edited.value?.text ?? (offers ? offered : stored);
  const changed = edited.value !== null && text !== stored;
  useUnsaved(() => edited.peek()?.text !== stored && edited.peek());
  const problem = changed || offers ? problemOf(text) : "";
  const off = problem !== "" || sending.value;

  /** Save the draft. Returns whether it is saved. @param {string} [done] what to say then @param {(problem: string) => void} [refused] */
  const save = async (done, refused) => {
    if (!(await succeeded(() => client().setParams(name, read(text)), done, refused))) return false;
    edited.value = null;
    return true;
  };
  /** Send commands, with the buttons disabled meanwhile. @param {() => Promise<unknown>} commands */
  const send = async (commands) => {
    sending.value = true;
    await commands();
    sending.value = false;
  };
  /** @param {"start" | "continue"} kind @param {string} job @param {OnConflict} onConflict */
  const submit = async (kind, job, onConflict) => {
    const refused = (/** @type {string} */ problem) => (refusal.value = problem);
    refused("");
    if (changed && !(await save("", refused))) return;
    const submission = JSON.stringify([job, kind, onConflict, text]);
    const requestId = requests.idOf(submission);
    const params = read(text) ?? {}; // what is shown, although someone can change the draft meanwhile
    const ticket = await attempt(() => client().submit(job, { handle: name, kind, onConflict, requestId, params }), "submitted", refused);
    if (ticket) requests.answered(submission);
    if (ticket && !handle.locked) go(to("runs", [ticket.id]));
  };
  return html`<section class="card draft" aria-labelledby="draft-title">
    <h2 id="draft-title">Draft parameters</h2>
    <label for="draft">JSON; empty for none${handle.locked && html` <span class="faint">(locked while a run is active)</span>`}</label>
    <textarea
      id="draft"
      rows="8"
      spellcheck=${false}
      readonly=${handle.locked || !mayEdit()}
      aria-invalid=${problem !== ""}
      aria-describedby="draft-problem"
      value=${text}
      onInput=${(/** @type {any} */ event) => (edited.value = { text: event.currentTarget.value, of: edited.value?.of ?? stored })}
    ></textarea>
    <${InvisibleLetters} value=${text} />
    <p id="draft-problem" class="error-text" aria-live="polite">${visible(problem)}</p>
    ${offers && html`<p class="faint">The draft is empty. These are the parameters of the last run, <${RunLink} id=${last?.id} short />: a new run gets them too, unless you change them.</p>`}
    ${changed && edited.value?.of !== stored && html`<p class="error-text">The draft was changed by someone else. Save replaces it.</p>`}
    ${mayEdit() &&
    html`<div class="actions">
        <button disabled=${off || !changed || handle.locked} onClick=${() => send(() => save("the draft is saved"))}>Save draft</button>
        <button class="quiet" disabled=${edited.value === null} onClick=${() => (edited.value = null)}>Discard changes</button>
      </div>`}
    ${may("operator") &&
    html`<${Start}
        handle=${handle}
        last=${last}
        off=${off || (changed && handle.locked)}
        refusal=${refusal.value}
        submit=${(/** @type {Parameters<typeof submit>} */ ...given) => send(() => submit(...given))}
      />`}
  </section>`;
}

/**
 * The form that starts a run with the draft. Its button shows why a start would be refused.
 * @param {object} props
 * @param {HandleState} props.handle
 * @param {RunRecord} [props.last]
 * @param {boolean} props.off
 * @param {string} props.refusal why the last start was refused
 * @param {(kind: "start" | "continue", job: string, onConflict: OnConflict) => void} props.submit
 */
function Start({ handle, last, off, refusal, submit }) {
  const job = useSignal(/** @type {string | null} */ (null));
  const onConflict = useSignal(/** @type {OnConflict} */ ("reject"));
  const { jobs } = useJobs();
  const chosen = job.value ?? last?.job ?? "";
  const conflict = handle.locked && onConflict.value === "reject" ? conflictOf(handle) : chosen.trim() ? "" : "choose a job";
  const disabled = off || conflict !== "";
  /** @param {"start" | "continue"} kind */
  const click = (kind) => () => submit(kind, chosen, onConflict.value);
  return html`<h2>Start a run with these parameters</h2>
    <div class="fields">
      <label class="field wide"><span>job</span>
        <input id="job" list="jobs" value=${chosen} onInput=${(/** @type {any} */ event) => (job.value = event.currentTarget.value)} />
      </label>
      <datalist id="jobs">${jobs?.map((one) => html`<option key=${one.name} value=${one.name}></option>`)}</datalist>
      <label class="field"><span>if the handle is busy</span>
        <select id="on-conflict" value=${onConflict.value} onChange=${(/** @type {any} */ event) => (onConflict.value = event.currentTarget.value)}>
          ${Object.entries(BUSY).map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
        </select>
      </label>
    </div>
    <div class="actions">
      <button class="primary" disabled=${disabled} onClick=${click("start")}>${conflict ? `Start: ${conflict}` : "Start"}</button>
      ${last && html`<button disabled=${disabled} title=${conflict} onClick=${click("continue")}>Continue from the checkpoint</button>`}
    </div>
    ${refusal && html`<p class="error-text" role="alert"><${Text} value=${refusal} /></p>`}
    ${last &&
    html`<p class="faint">Start begins afresh. Continue begins at the last checkpoint that the job has saved for this handle. Both use the
      parameters above.</p>`}`;
}

/** @param {unknown} params */
const written = (params) => (params === null ? "" : writeExact(params, 2));

/** The parameters that a text is; null for none. @param {string} text */
const read = (text) => (text.trim() ? parseExact(text) : null);

/** @param {string} text */
function problemOf(text) {
  try {
    read(text);
    return "";
  } catch (error) {
    return `the draft is not valid JSON: ${/** @type {Error} */ (error).message}`;
  }
}

/** Why a start is refused now. @param {HandleState} handle */
export function conflictOf({ active_run: id }) {
  const run = live.runs.get(id ?? "");
  if (!run) return "the handle is busy";
  if (hasEnded(run)) return `the body of run …${run.id.slice(-8)} has not ended`;
  return `run …${run.id.slice(-8)} is ${run.status.replace("_", " ")}`;
}

/** Whether a command succeeds; its error is shown. @param {() => Promise<unknown>} command @param {string} [done] @param {(problem: string) => void} [refused] */
const succeeded = async (command, done, refused) => (await attempt(() => command().then(() => true), done, refused)) === true;
