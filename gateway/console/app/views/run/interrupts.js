/** The open interrupts of a run, and how a person answers one: approve, deny, or any JSON. */

import { html, useSignal } from "../../../vendor/ui.js";
import { Elapsed, HandleLink, RunLink } from "../../parts/basic.js";
import { Json } from "../../parts/json.js";
import { Text, visible } from "../../parts/text.js";
import { parsed } from "../../parts/value.js";
import { now, span } from "../../state/clock.js";
import { client, live, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { flowOf } from "../runs/filter.js";

/** @typedef {import("../../../greenroom.js").InterruptState} InterruptState */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const MOST_CHOICES = 20;
const MOST_SHOWN = 100; // characters of an answer in the message about it

/** Open interrupts in the order of the inbox. @param {[string, InterruptState][]} list */
export const newestFirst = (list) => list.toSorted(([, one], [, other]) => other.opened_at - one.opened_at);

/** @param {{ list: [string, InterruptState][], linked?: boolean }} props */
export function Interrupts({ list, linked = false }) {
  return list.map(([id, interrupt]) => html`<${Interrupt} key=${id} id=${id} interrupt=${interrupt} linked=${linked} />`);
}

/** @param {{ id: string, interrupt: InterruptState, linked: boolean }} props */
function Interrupt({ id, interrupt, linked }) {
  const text = useSignal("");
  const problem = useSignal("");
  const sending = useSignal(false);
  /** @param {unknown} data @param {string} what the answer, as the message names it */
  const send = async (data, what) => {
    sending.value = true;
    await attempt(() => client().answer(id, data), (outcome) => (outcome === "resolved" ? `answered: ${visible(what)}` : `the interrupt is ${outcome.replace("_", " ")}`));
    sending.value = false;
  };
  const sendText = () => {
    try {
      problem.value = "";
      send(parsed(text.value), text.value.trim().slice(0, MOST_SHOWN));
    } catch (error) {
      problem.value = `the answer is not valid JSON: ${/** @type {Error} */ (error).message}`;
    }
  };
  const { key, data, opened_at, deadline } = interrupt;
  const run = live.runs.get(interrupt.run);
  const { question, choices, node } = formOf(data, run);
  return html`<article class="interrupt card" aria-label="Open interrupt" tabindex=${linked ? -1 : undefined}>
    <p class="interrupt-head">
      <strong>Waits for an ${node ? "approval" : "answer"}</strong>
      ${node
        ? html`<span>flow <strong><${Text} value=${flowOf(/** @type {any} */ (run))} /></strong>, node <strong><${Text} value=${node} /></strong></span>`
        : html`<span class="tag"><${Text} value=${key} /></span>`}
      ${linked && html`<${RunLink} id=${interrupt.run} short />`}
      ${linked && run && html`<span><${Text} value=${run.job} /> of <${HandleLink} name=${run.handle} /></span>`}
      <span class="faint">since <${Elapsed} from=${opened_at} /></span>
      ${deadline !== null && html`<span class="faint">denied in ${span(deadline - now.value)}</span>`}
    </p>
    ${question && html`<p class="question"><${Text} value=${question} lines /></p>`}
    ${node ? html`<details><summary class="faint">Its input and parameters</summary><${Json} value=${data} /></details>` : html`<${Json} value=${data} />`}
    ${may("operator") &&
    html`<div class="actions">
        ${choices.map(
          (choice) => html`<button key=${choice} disabled=${sending.value} onClick=${() => send({ approved: true, choice }, choice)}><${Text} value=${choice} /></button>`,
        )}
        ${choices.length === 0 && html`<button class="primary" disabled=${sending.value} onClick=${() => send({ approved: true }, "approved")}>Approve</button>`}
        <button class="danger" disabled=${sending.value} onClick=${() => send({ approved: false }, "denied")}>Deny</button>
        <details class="other">
          <summary>Another answer</summary>
          <label>JSON
            <textarea rows="3" spellcheck=${false} value=${text.value} onInput=${(/** @type {any} */ event) => (text.value = event.currentTarget.value)}></textarea>
          </label>
          ${problem.value && html`<p class="error-text" role="alert">${problem.value}</p>`}
          <button disabled=${sending.value || !text.value.trim()} onClick=${sendText}>Send</button>
        </details>
      </div>`}
  </article>`;
}

/**
 * What the data of an interrupt says about its form: a text `question`, and `choices`, a list of texts. Those of a flow's
 * approval are in the node's parameters or its input.
 * @param {any} data
 * @param {RunRecord | undefined} run
 * @returns {{ question: string, choices: string[], node: string }}
 */
function formOf(data, run) {
  const { node, approval_key: approval, params, input } = objectOf(data);
  const isApproval = run !== undefined && flowOf(run) !== null && typeof node === "string" && typeof approval === "string";
  const { question, choices } = isApproval ? { ...objectOf(input), ...objectOf(params) } : objectOf(data);
  const texts = Array.isArray(choices) && choices.every((one) => typeof one === "string") ? choices : [];
  return {
    question: typeof question === "string" ? question : "",
    choices: [...new Set(texts)].slice(0, MOST_CHOICES),
    node: isApproval ? node : "",
  };
}

/** @param {any} value @returns {Record<string, any>} */
const objectOf = (value) => (typeof value === "object" && value !== null ? value : {});
