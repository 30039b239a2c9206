/** The form that submits a run of a job. */

import { writeExact } from "../../../greenroom.js";
import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { Field } from "../../parts/field.js";
import { InvisibleLetters, Text } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { Requests } from "../../state/requests.js";
import { client, limits, limitsInWords, live, seesHandle } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { useUnsaved } from "../../state/unsaved.js";
import { BUSY } from "../handles/busy.js";
import { conflictOf } from "../handles/draft.js";
import { HandleStatus } from "../handles/status.js";
import { seconds } from "../runs/filter.js";
import { Parameters, paramsIn, useParameters } from "./parameters.js";
import { fieldsOf } from "./schema.js";
import { tagsIn, textOfTags } from "./tags.js";

/** @typedef {import("../../../greenroom.js").JobInfo} JobInfo */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("../handles/draft.js").OnConflict} OnConflict */

/** `run`: the run that the form begins with. @param {{ job: JobInfo, run?: RunRecord }} props */
export function Form({ job, run }) {
  const given = useParameters(useMemo(() => fieldsOf(job.params), []), run?.params);
  const handle = useSignal(run?.handle ?? "");
  const onConflict = useSignal(/** @type {OnConflict} */ ("reject"));
  const problem = useSignal("");
  const sending = useSignal(false);
  const edited = useSignal(false);
  const requests = useMemo(() => new Requests(), []);
  useUnsaved(() => edited.peek());
  live.frame.value; // renders again after each change

  const name = typed(handle.value, run?.handle);
  const state = name ? live.handle(name) : null;
  const conflict = state?.locked && onConflict.value === "reject" ? conflictOf(state) : "";

  /** @param {FormData} form */
  const optionsIn = (form) => {
    const text = (/** @type {string} */ field) => String(form.get(field) ?? "");
    const [lane, key] = [typed(text("lane"), run?.lane), typed(text("key"), run?.key)];
    const tags = tagsIn(text("tags"));
    return {
      handle: name,
      params: paramsIn(given, form),
      onConflict: onConflict.value,
      ...(lane && { lane }),
      ...(key && { key }),
      ...(Object.keys(tags).length > 0 && { tags }),
      ...(text("priority") && { priority: Number(text("priority")) }),
      ...(text("start_at") && { startAt: seconds(text("start_at")) }),
      ...(run && run.needs.length > 0 && { needs: run.needs }),
    };
  };
  /** @param {any} event */
  const submit = async (event) => {
    event.preventDefault();
    problem.value = "";
    let options;
    try {
      options = optionsIn(new FormData(event.currentTarget));
    } catch (error) {
      problem.value = /** @type {Error} */ (error).message;
      return;
    }
    const submission = writeExact([job.name, options]);
    const requestId = requests.idOf(submission);
    sending.value = true;
    const ticket = await attempt(
      () => client().submit(job.name, { ...options, requestId }),
      ({ joined }) => (joined ? "joined the active run" : "submitted"),
      (text) => (problem.value = text),
    );
    sending.value = false;
    if (!ticket) return;
    requests.answered(submission);
    edited.value = false;
    go(to("runs", [ticket.id]));
  };
  return html`<form class="form card" aria-label="New run" onSubmit=${submit} onInput=${() => (edited.value = true)}>
    <label class="wide"><span>Handle: the account, session or device whose runs never overlap</span>
      <input name="handle" required autocomplete="off" spellcheck=${false} value=${handle.value} onInput=${(/** @type {any} */ event) => (handle.value = event.currentTarget.value)} />
      <${InvisibleLetters} value=${handle.value} />
      ${name && html`<${Present} name=${name} state=${state} />`}
    </label>
    <${Parameters} given=${given} />
    <details class="wide more" open=${run !== undefined || limits.value?.lanes !== undefined}>
      <summary>More</summary>
      <div class="form">
        <${Field} name="lane" label="Lane" value=${run?.lane} placeholder=${job.lane} />
        <${Field} name="priority" label="Priority, from -100 to 100" type="number" value=${run?.priority} placeholder="that of the job" />
        <label><span>Start not before</span><input type="datetime-local" name="start_at" step="1" /></label>
        <label><span>If the handle is busy</span>
          <select name="on_conflict" value=${onConflict.value} onChange=${(/** @type {any} */ event) => (onConflict.value = event.currentTarget.value)}>
            ${Object.entries(BUSY).map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
          </select>
        </label>
        <${Field} name="key" label="Key, for the rules of the lane" value=${run?.key ?? ""} />
        <label class="wide"><span>Tags: a line name=value for each</span>
          <textarea name="tags" rows="2" spellcheck=${false} defaultValue=${textOfTags(run?.tags ?? {})}></textarea>
        </label>
      </div>
    </details>
    ${run && run.needs.length > 0 && html`<p class="faint wide">It needs an executor with the labels <${Text} value=${run.needs.join(", ")} />, as the run before.</p>`}
    ${problem.value && html`<p class="error-text wide" role="alert"><${Text} value=${problem.value} lines /></p>`}
    <div class="wide"><button class="primary" disabled=${sending.value || conflict !== ""}>${conflict ? `Start: ${conflict}` : "Start"}</button></div>
  </form>`;
}

/** A name without the spaces around it, unless it is that of the run before. @param {string} text @param {string | null | undefined} before */
const typed = (text, before) => (text === before ? text : text.trim());

/** What a handle does now. @param {{ name: string, state: import("../../../greenroom.js").HandleState | null }} props */
function Present({ name, state }) {
  if (!seesHandle(name)) return html`<small class="error-text">Your token is limited to <${Text} value=${limitsInWords()} />.</small>`;
  if (!state) return html`<small class="faint">No run of it is pending.</small>`;
  return html`<small><${HandleStatus} handle=${state} />${state.waiting.length > 0 && html` <span class="faint">${state.waiting.length} waiting</span>`}</small>`;
}
