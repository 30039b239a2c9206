/** The open interrupts of a run, and how a person answers one: approve, deny, or any JSON. */

import { parseExact } from "../../../greenroom.js";
import { html, useLayoutEffect, useRef, useSignal } from "../../../vendor/ui.js";
import { Elapsed, HandleLink, Moment, RunLink } from "../../parts/basic.js";
import { brief } from "../../parts/brief.js";
import { Json } from "../../parts/json.js";
import { Text, visible } from "../../parts/text.js";
import { now, span } from "../../state/clock.js";
import { client, live, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { flowOf, workOf } from "../runs/filter.js";

/** @typedef {import("../../../greenroom.js").InterruptState} InterruptState */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const NUMBER = /^\d+$/; // a key that nobody has chosen
const MOST_CHOICES = 20;
const MOST_SHOWN = 100; // characters of an answer in the message about it

/** Open interrupts in the order of the inbox. @param {[string, InterruptState][]} list */
export const newestFirst = (list) => list.toSorted(([, one], [, other]) => other.opened_at - one.opened_at);

/** @typedef {import("../../../greenroom.js").InterruptClosed} InterruptClosed */
/** @typedef {{ list: [string, InterruptState][], closed: Map<string, InterruptClosed | null>, linked?: boolean, compact?: boolean }} Listed */

/**
 * The interrupts of a run or of a handle. While a person is at them, new ones appear below the others.
 * @param {{ asked: ReturnType<typeof import("./held.js").useHeld>, linked?: boolean }} props
 */
export function Asked({ asked: { list, closed, added, handlers }, linked = false }) {
  if (list.length === 0) return null;
  return html`<section aria-label="Interrupts" ...${handlers}>
    <p class="hidden" role="status">${added > 0 && `${added} new ${added === 1 ? "interrupt" : "interrupts"}`}</p>
    <${Interrupts} list=${list} closed=${closed} linked=${linked} />
  </section>`;
}

/** `closed`: those of the list that are not open any more; `compact`: with their data folded. @param {Listed} props */
export function Interrupts({ list, closed, linked = false, compact = false }) {
  return list.map(
    ([id, interrupt]) =>
      html`<${Interrupt} key=${id} id=${id} interrupt=${interrupt} linked=${linked} compact=${compact} isOpen=${!closed.has(id)} end=${closed.get(id)} />`,
  );
}

/** @param {{ id: string, interrupt: InterruptState, linked: boolean, compact: boolean, isOpen: boolean, end?: InterruptClosed | null }} props */
function Interrupt({ id, interrupt, linked, compact, isOpen, end }) {
  const card = useRef(/** @type {HTMLElement | null} */ (null));
  const height = useRef(0);
  useLayoutEffect(() => {
    if (isOpen) height.current = card.current?.getBoundingClientRect().height ?? 0; // a closed card is not lower, and moves nothing
  });
  const text = useSignal("");
  const problem = useSignal("");
  const sending = useSignal(false);
  /** @param {unknown} data @param {string} what the answer, as the message names it */
  const send = async (data, what) => {
    if (linked) card.current?.focus({ preventScroll: true }); // the button cannot keep the focus
    sending.value = true;
    const outcome = await attempt(() => client().answer(id, data), (outcome) => (outcome === "resolved" ? `answered: ${visible(what)}` : `the interrupt is ${outcome.replace("_", " ")}`));
    sending.value = outcome !== undefined; // of an answered one, the card is closed in the next frame
  };
  const sendText = () => {
    try {
      problem.value = "";
      send(parseExact(text.value), text.value.trim().slice(0, MOST_SHOWN));
    } catch (error) {
      problem.value = `the answer is not valid JSON: ${/** @type {Error} */ (error).message}`;
    }
  };
  const { key, data, opened_at, deadline } = interrupt;
  const run = live.runs.get(interrupt.run);
  const { question, choices, more, node } = formOf(data, run);
  const off = sending.value || !isOpen;
  const about = visible(`${run ? `${workOf(run)} of ${run.handle}` : `run ${interrupt.run}`}, ${node || key}`); // tells the cards apart
  return html`<article ref=${card} class="interrupt card ${isOpen ? "" : "closed"} ${compact ? "compact" : ""}" aria-label=${`${isOpen ? "Open" : "Closed"} interrupt: ${about}`} tabindex=${linked ? -1 : undefined} style=${isOpen ? undefined : { minHeight: `${height.current}px` }}>
    <p class="interrupt-head">
      <strong>${isOpen ? `Waits for an ${node ? "approval" : "answer"}` : "Closed"}</strong>
      ${node
        ? html`<span>flow <strong><${Text} value=${flowOf(/** @type {any} */ (run))} /></strong>, node <strong><${Text} value=${node} /></strong></span>`
        : !(compact && NUMBER.test(key)) && html`<span class="tag"><${Text} value=${key} /></span>`}
      ${linked && html`<${RunLink} id=${interrupt.run} short />`}
      ${linked && run && html`<span>${!node && html`<${Text} value=${workOf(run)} />`} of <${HandleLink} name=${run.handle} /></span>`}
      ${isOpen
        ? html`<span class="faint">since <${Elapsed} from=${opened_at} /></span>
            ${deadline !== null && html`<span class="faint">denied in ${span(deadline - now.value)}</span>`}`
        : html`<span class="faint">opened at <${Moment} at=${opened_at} /></span>`}
    </p>
    ${question && html`<p class="question"><${Text} value=${question} lines /></p>`}
    ${!question && compact && html`<p class="question mono"><${Text} value=${brief(data, MOST_SHOWN)} /></p>`}
    ${node || compact
      ? html`<details><summary class="faint">${node ? "Its input and parameters" : "Its data"}</summary><${Json} value=${data} name=${`the data of ${about}`} /></details>`
      : html`<${Json} value=${data} name=${`the data of ${about}`} />`}
    <div class="answering">
      ${!isOpen && html`<p class="outcome" role="status"><${Text} value=${told(end)} /></p>`}
      ${may("operator") &&
      html`<div class="actions" inert=${!isOpen}>
        ${choices.map(
          (choice) => html`<button key=${choice} disabled=${off} aria-label=${`${choice.trim() ? visible(choice) : "a choice without text"}: ${about}`} onClick=${() => send({ approved: true, choice }, choice)}>${choice.trim() ? html`<${Text} value=${choice} />` : `“${choice}”, without text`}</button>`,
        )}
        ${more > 0 && html`<p class="faint">${more} more ${more === 1 ? "choice is" : "choices are"} in the data above: send one as another answer, {"approved": true, "choice": "…"}.</p>`}
        ${choices.length === 0 && html`<button class="primary" disabled=${off} aria-label=${`Approve: ${about}`} onClick=${() => send({ approved: true }, "approved")}>Approve</button>`}
        <button class="danger" disabled=${off} aria-label=${`Deny: ${about}`} onClick=${() => send({ approved: false }, "denied")}>Deny</button>
        <details class="other">
          <summary>Another answer</summary>
          <label>JSON
            <textarea rows="3" aria-label=${`JSON: ${about}`} spellcheck=${false} value=${text.value} onInput=${(/** @type {any} */ event) => (text.value = event.currentTarget.value)}></textarea>
          </label>
          ${problem.value && html`<p class="error-text" role="alert">${problem.value}</p>`}
          <button disabled=${off || !text.value.trim()} aria-label=${`Send: ${about}`} onClick=${sendText}>Send</button>
        </details>
      </div>`}
    </div>
  </article>`;
}

/** How an interrupt was closed. @param {InterruptClosed | null} [end] absent if the event did not arrive */
function told(end) {
  if (!end) return "No longer open";
  if (end.outcome !== "answered") return end.outcome.replace("_", " ");
  const answer = /** @type {any} */ (end.answer);
  const kinds = { true: "Approved", false: "Denied" };
  const kind = kinds[/** @type {"true" | "false"} */ (String(answer?.approved))];
  const what = kind ? answer.choice : answer;
  return [kind ?? "Answered", what !== undefined && written(what), `by ${end.by}`].filter(Boolean).join(" ");
}

/** An answer in one line. @param {unknown} answer */
const written = (answer) => (typeof answer === "string" ? `“${answer.slice(0, MOST_SHOWN)}”` : brief(answer, MOST_SHOWN));

/**
 * What the data of an interrupt says about its form: a text `question`, and `choices`, a list of texts. Those of a flow's
 * approval are in the node's parameters or its input. `more`: how many choices have no button.
 * @param {any} data
 * @param {RunRecord | undefined} run
 * @returns {{ question: string, choices: string[], more: number, node: string }}
 */
function formOf(data, run) {
  const { node, approval_key: approval, params, input } = objectOf(data);
  const isApproval = run !== undefined && flowOf(run) !== null && typeof node === "string" && typeof approval === "string";
  const { question, choices } = isApproval ? { ...objectOf(input), ...objectOf(params) } : objectOf(data);
  const texts = [...new Set(Array.isArray(choices) && choices.every((one) => typeof one === "string") ? choices : [])];
  const shown = texts.slice(0, MOST_CHOICES);
  return {
    question: typeof question === "string" ? question : "",
    choices: shown,
    more: texts.length - shown.length,
    node: isApproval ? node : "",
  };
}

/** @param {any} value @returns {Record<string, any>} */
const objectOf = (value) => (typeof value === "object" && value !== null ? value : {});
