/** The form that starts a run of a flow: a field for each parameter that its nodes read, and JSON for any others. */

import { writeExact } from "../../../greenroom.js";
import { html, useMemo, useSignal } from "../../../vendor/ui.js";
import { visible } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { client } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { parametersOf, valueOf } from "./parameters.js";

/** @param {{ name: string, version: number, definition: any }} props */
export function Start({ name, version, definition }) {
  const parameters = useMemo(() => parametersOf(definition), [definition]);
  const problem = useSignal("");
  const sending = useSignal(false);
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    const others = objectOf(String(fields.get("others")));
    problem.value = others === null ? "the other parameters must be a JSON object" : "";
    if (others === null) return;
    const typed = parameters.map((one, index) => [one.name, String(fields.get(`parameter ${index}`))]).filter(([, text]) => text !== "");
    const params = { ...others, ...Object.fromEntries(typed.map(([key, text]) => [key, valueOf(text)])) };
    const handle = String(fields.get("handle")).trim() || null;
    sending.value = true;
    const ticket = await attempt(() => client().flows.start(name, { version, params, handle }), "started");
    sending.value = false;
    if (ticket) go(to("runs", [ticket.id]));
  };
  return html`<form class="start-form" onSubmit=${submit}>
    ${parameters.map(
      ({ name: own, required, usual }, index) => html`<label key=${own}>
        <span>${visible(own)}${required && html` <small class="faint">required</small>`}</span>
        <input name=${`parameter ${index}`} required=${required} placeholder=${usual === undefined ? "text, or JSON" : visible(writeExact(usual))} spellcheck=${false} />
      </label>`,
    )}
    <label><span>Other parameters</span><textarea name="others" rows="2" placeholder="a JSON object" spellcheck=${false}></textarea></label>
    <label><span>Handle</span><input name="handle" placeholder="its own" /></label>
    ${problem.value && html`<p class="error-text" role="alert">${problem.value}</p>`}
    <div class="actions"><button class="primary" disabled=${sending.value}>Start version ${version}</button></div>
  </form>`;
}

/** The object in a text, {} if it is empty, or null. @param {string} text */
function objectOf(text) {
  if (text.trim() === "") return {};
  const value = valueOf(text);
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
}
