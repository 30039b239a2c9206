/** The nodes of a run that wait for a signal, each with its key and, for operators, a form that sends one. */

import { html, useRef, useSignal } from "../../../vendor/ui.js";
import { Text } from "../../parts/text.js";
import { valueOf } from "../../parts/value.js";
import { ValueField } from "../../parts/valuefield.js";
import { client, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("./outline.js").Place} Place */

/** @param {{ run: RunRecord, places: readonly Place[], states: import("./walked.js").Walked["states"] }} props */
export function Signals({ run, places, states }) {
  if (run.status !== "suspended" || run.waiting_for !== "signal") return null;
  const waiting = places.filter(({ path, kind }) => kind === "wait_event" && states.get(path)?.status === "suspended");
  return waiting.map(({ path, node }) => html`<${Wait} key=${path} run=${run} path=${path} awaited=${keyOf(run, node)} />`);
}

/** @param {{ run: RunRecord, path: string, awaited: string }} props */
function Wait({ run, path, awaited }) {
  const sending = useSignal(false);
  const sent = useSignal(0);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const isKey = !/^\$(?!shared\b)/.test(awaited); // other values cannot be set by a signal
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const fields = new FormData(/** @type {HTMLFormElement} */ (form.current));
    const key = String(fields.get("key")).trim();
    const { value } = valueOf(String(fields.get("value")));
    sending.value = true;
    const done = await attempt(() => client().signal(run.id, key, value).then(() => true), `signal ${key} is sent`);
    sending.value = false;
    if (done) sent.value += 1;
  };
  return html`<section class="card signal" aria-label="Waits for a signal">
    <p><strong>Waits for a signal</strong>: node <span class="tag"><${Text} value=${path} /></span> waits until <span class="tag mono"><${Text} value=${awaited} /></span> has a value.</p>
    ${may("operator") &&
    html`<form ref=${form} key=${sent.value} class="start-form" onSubmit=${submit}>
      <label><span>Key</span><input name="key" required defaultValue=${isKey ? awaited : ""} spellcheck=${false} autocomplete="off" /></label>
      <${ValueField} name="value" label="Value" required />
      <div class="actions"><button class="primary" disabled=${sending.value}>Send signal</button></div>
    </form>`}
  </section>`;
}

/** The path for which a node waits: of the run's parameters, else of the definition. @param {RunRecord} run @param {any} node */
function keyOf(run, node) {
  const { params } = /** @type {{ params?: any }} */ (run.params ?? {});
  return String(params?.signal_key ?? node.params?.signal_key ?? "");
}
