/** The open interrupts of a run, and how a person answers one: approve, deny, or any JSON. */

import { parseExact } from "../../../greenroom.js";
import { html, useSignal } from "../../../vendor/ui.js";
import { Elapsed, HandleLink, RunLink } from "../../parts/basic.js";
import { Json } from "../../parts/json.js";
import { Text } from "../../parts/text.js";
import { now, span } from "../../state/clock.js";
import { client, live, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";

/** @typedef {import("../../../greenroom.js").InterruptState} InterruptState */

const MOST_CHOICES = 20;

/** @param {{ list: [string, InterruptState][], linked?: boolean }} props */
export function Interrupts({ list, linked = false }) {
  return list.map(([id, interrupt]) => html`<${Interrupt} key=${id} id=${id} interrupt=${interrupt} linked=${linked} />`);
}

/** @param {{ id: string, interrupt: InterruptState, linked: boolean }} props */
function Interrupt({ id, interrupt, linked }) {
  const text = useSignal("");
  const problem = useSignal("");
  const sending = useSignal(false);
  /** @param {unknown} data */
  const send = async (data) => {
    sending.value = true;
    await attempt(() => client().answer(id, data), (outcome) => `the interrupt is ${outcome.replace("_", " ")}`);
    sending.value = false;
  };
  const sendText = () => {
    try {
      problem.value = "";
      send(parseExact(text.value));
    } catch (error) {
      problem.value = `the answer is not valid JSON: ${/** @type {Error} */ (error).message}`;
    }
  };
  const { key, data, opened_at, deadline } = interrupt;
  const run = live.runs.get(interrupt.run);
  const { question, choices, more } = formOf(data);
  return html`<article class="interrupt card" aria-label="Open interrupt" tabindex=${linked ? -1 : undefined}>
    <p class="interrupt-head">
      <strong>Waits for an answer</strong> <span class="tag"><${Text} value=${key} /></span>
      ${linked && html`<${RunLink} id=${interrupt.run} short />`}
      ${linked && run && html`<${HandleLink} name=${run.handle} />`}
      <span class="faint">since <${Elapsed} from=${opened_at} /></span>
      ${deadline !== null && html`<span class="faint">denied in ${span(deadline - now.value)}</span>`}
    </p>
    ${question && html`<p class="question"><${Text} value=${question} lines /></p>`}
    <${Json} value=${data} />
    ${may("operator") &&
    html`<div class="actions">
        <button class="primary" disabled=${sending.value} onClick=${() => send({ approved: true })}>Approve</button>
        <button class="danger" disabled=${sending.value} onClick=${() => send({ approved: false })}>Deny</button>
        ${choices.map(
          (choice) => html`<button key=${choice} disabled=${sending.value} onClick=${() => send({ approved: true, choice })}>${choice.trim() ? html`<${Text} value=${choice} />` : `“${choice}”, without text`}</button>`,
        )}
        ${more > 0 && html`<p class="faint">${more} more ${more === 1 ? "choice is" : "choices are"} in the data above: send one as another answer, {"approved": true, "choice": "…"}.</p>`}
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
 * What the data of an interrupt says about its form: a text `question`, and `choices`, a list of texts.
 * @param {any} data
 * `more`: how many choices have no button.
 * @returns {{ question: string, choices: string[], more: number }}
 */
function formOf(data) {
  const { question, choices } = typeof data === "object" && data !== null ? data : {};
  const texts = [...new Set(Array.isArray(choices) && choices.every((one) => typeof one === "string") ? choices : [])];
  const shown = texts.slice(0, MOST_CHOICES);
  return { question: typeof question === "string" ? question : "", choices: shown, more: texts.length - shown.length };
}
