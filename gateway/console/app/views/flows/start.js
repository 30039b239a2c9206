/** The form that starts a run of a flow: a field for each parameter that its nodes read, and JSON for any others. */

import { parseExact, writeExact } from "../../../greenroom.js";
import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { visible } from "../../parts/text.js";
import { valueOf } from "../../parts/value.js";
import { ValueField } from "../../parts/valuefield.js";
import { go, to } from "../../state/address.js";
import { Requests } from "../../state/requests.js";
import { client } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { parametersOf } from "./parameters.js";

/** @param {{ name: string, version: number, definition: any }} props */
export function Start({ name, version, definition }) {
  const parameters = useMemo(() => parametersOf(definition), [definition]);
  const problem = useSignal("");
  const sending = useSignal(false);
  const requests = useMemo(() => new Requests(), [name]);
  /** The other parameters, or null with a problem. @param {string} text */
  const read = (text) => {
    problem.value = "";
    try {
      const others = text.trim() === "" ? {} : parseExact(text);
      if (typeof others === "object" && others !== null && !Array.isArray(others)) return others;
      problem.value = "the other parameters must be a JSON object";
    } catch (error) {
      problem.value = `the other parameters must be a JSON object: ${/** @type {Error} */ (error).message}`;
    }
    return null;
  };
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    const others = read(String(fields.get("others")));
    if (others === null) return;
    const typed = parameters.map((one, index) => [one.name, String(fields.get(`parameter ${index}`))]).filter(([, text]) => text !== "");
    const params = { ...others, ...Object.fromEntries(typed.map(([key, text]) => [key, valueOf(text).value])) };
    const handle = String(fields.get("handle")).trim() || null;
    const submission = writeExact([version, params, handle]);
    const requestId = requests.idOf(submission);
    sending.value = true;
    const ticket = await attempt(() => client().flows.start(name, { version, params, handle, requestId }), "started", (refused) => (problem.value = refused));
    sending.value = false;
    if (ticket) requests.answered(submission);
    if (ticket) go(to("runs", [ticket.id]));
  };
  return html`<form class="start-form" onSubmit=${submit}>
    ${parameters.map(
      ({ name: own, required, usual }, index) => html`<${ValueField}
        key=${own}
        name=${`parameter ${index}`}
        label=${html`${visible(own)}${required && html` <small class="faint">required</small>`}`}
        required=${required}
        placeholder=${usual === undefined ? "text, or JSON" : visible(writeExact(usual))}
      />`,
    )}
    <label><span>Other parameters</span><textarea name="others" rows="2" placeholder="a JSON object" spellcheck=${false}></textarea></label>
    <label><span>Handle</span><input name="handle" placeholder="its own" /></label>
    ${problem.value && html`<p class="error-text" role="alert">${visible(problem.value)}</p>`}
    <div class="actions"><button class="primary" disabled=${sending.value}>Start version ${version}</button></div>
  </form>`;
}
