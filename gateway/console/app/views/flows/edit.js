/** Edit a version of a flow, or write a new flow: the server checks the text as it is written. */

import { parseExact } from "../../../greenroom.js";
import { html, useEffect, useMemo, useRef, useSignal } from "../../../vendor/ui.js";
import { Editor } from "../../parts/editor.js";
import { Text } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { onReturn, useReading } from "../../state/reading.js";
import { client, limits, limitsInWords, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { takeKept, useUnsaved } from "../../state/unsaved.js";
import { placeOf } from "./places.js";
import { toYaml } from "./yaml.js";

/** @typedef {import("../../../greenroom.js").VersionRow} VersionRow */
/** @typedef {{ from: number, to: number, severity: "error" | "warning", message: string }} Mistake */

const PAUSE = 250; // milliseconds without a key before a check
const FIRST = { start: "first", nodes: { first: { kind: "timer", params: { delay_ms: 1000 } } }, edges: [{ from: "first", to: "" }] };

/** Whether the token may change flows. They belong to no handle, lane or job. */
export const mayEdit = () => may("operator") && limits.value === null;

/** Why an address with `edit` shows no editor. */
export function EditRefused() {
  const why = may("operator") ? `Your token may not change flows: it is limited to ${limitsInWords()}.` : "Only the role operator and above may change flows.";
  return html`<p><${Text} value=${why} /></p>`;
}

/** @param {{ name?: string, base?: VersionRow, definition?: any }} props `base` is the version that is edited */
export function Edit({ name, base, definition = FIRST }) {
  const before = useMemo(takeKept, []);
  const stored = useMemo(() => toYaml(definition), []);
  const opened = before?.of ?? stored;
  const first = before?.text ?? stored;
  const text = useSignal(first);
  const kept = useRef(stored); // what is saved, or may be lost
  const given = useSignal(before?.name ?? name ?? "");
  useUnsaved(() => text.peek() !== kept.current && { text: text.peek(), name: given.peek(), of: opened });
  const mistakes = useSignal(/** @type {Mistake[]} */ ([]));
  const checked = useSignal("");
  const problem = useSignal("");
  const sending = useSignal(false);
  const view = useRef(/** @type {import("../../../vendor/editor.js").EditorView | null} */ (null));
  useEffect(() => {
    const wanted = text.value;
    let current = true;
    const check = async () => {
      try {
        const found = await mistakesIn(wanted);
        if (!current) return;
        mistakes.value = found;
        checked.value = wanted;
        problem.value = "";
      } catch (error) {
        if (current) problem.value = /** @type {Error} */ (error).message;
      }
    };
    const timer = setTimeout(check, checked.peek() ? PAUSE : 0);
    const ignoreReturn = onReturn(() => void (problem.peek() && check()));
    return () => {
      current = false;
      clearTimeout(timer);
      ignoreReturn();
    };
  }, [text.value]);

  const replaced = base?.status === "draft" ? base.version : null;
  const publish = async (/** @type {"draft" | "published"} */ status) => {
    const flow = given.value.trim();
    const sent = text.value;
    sending.value = true;
    const row = await attempt(
      async () => {
        if (name === undefined && (await exists(flow))) throw new Error("a flow of this name exists: open it to add a version, or choose another name");
        return await client().flows.publish(flow, sent, { version: replaced, status });
      },
      (made) => (status === "draft" ? `version ${made.version} is saved as a draft` : `version ${made.version} is published`),
    );
    sending.value = false;
    if (!row) return;
    kept.current = sent;
    go(to("flows", [flow], { version: String(row.version) }));
  };
  const errors = mistakes.value.filter(({ severity }) => severity === "error").length;
  const ready = given.value.trim() !== "" && checked.value === text.value && errors === 0 && !sending.value;
  const show = (/** @type {Mistake} */ { from }) => {
    view.current?.dispatch({ selection: { anchor: from }, scrollIntoView: true });
    view.current?.focus();
  };
  return html`<section class="card edit">
    <h2>${base ? (replaced ? `Draft ${replaced}` : `A new version, from version ${base.version}`) : "New flow"}</h2>
    ${name === undefined &&
    html`<p><label>Name <input value=${given.value} onInput=${(/** @type {any} */ event) => (given.value = event.currentTarget.value)} /></label></p>`}
    <${Editor} label="Definition as YAML" text=${first} mistakes=${mistakes.value} view=${view} onChange=${(/** @type {string} */ next) => (text.value = next)} />
    ${problem.value && html`<p class="error-text" role="alert"><${Text} value=${problem.value} /></p>`}
    <div role="status" class="faint">${checked.value !== text.value ? "Checking…" : errors ? `${errors} ${errors === 1 ? "error" : "errors"}` : "No errors."}</div>
    <ul class="mistakes">${mistakes.value.map(
      (mistake, index) => html`<li key=${index} class=${mistake.severity}>
        <button class="quiet" onClick=${() => show(mistake)}>${mistake.severity} in line ${text.value.slice(0, mistake.from).split("\n").length}</button>
        <${Text} value=${mistake.message} />
      </li>`,
    )}</ul>
    ${replaced !== null && !sending.value && html`<${Changed} id=${base?.id} opened=${opened} />`}
    <div class="actions">
      <button class="primary" disabled=${!ready} onClick=${() => publish("published")}>Publish</button>
      <button disabled=${!ready} onClick=${() => publish("draft")}>Save as draft</button>
      <a class="button" onClick=${() => (kept.current = text.value)} href=${name === undefined ? to("flows") : to("flows", [name], { version: String(base?.version ?? "") })}>Discard</a>
    </div>
  </section>`;
}

/** Says that someone changed the draft since it was opened. @param {{ id: string, opened: string }} props */
function Changed({ id, opened }) {
  const { value: row } = useReading(() => client().flows.version(id), ["flow_changed"]);
  const now = useMemo(() => row && toYaml(parseExact(row.definition)), [row]);
  if (now === null || now === opened) return null;
  return html`<p class="error-text" role="status">The draft was changed by someone else. Save or Publish replaces it.</p>`;
}

/** @param {string} flow */
async function exists(flow) {
  try {
    await client().flows.versions(flow, { limit: 1 });
    return true;
  } catch (error) {
    if (/** @type {any} */ (error).code === "not_found") return false;
    throw error;
  }
}

/** What the server says about a text, each at its place. @param {string} text @returns {Promise<Mistake[]>} */
async function mistakesIn(text) {
  const [{ yaml }, { errors, warnings }] = await Promise.all([import("../../../vendor/editor.js"), client().flows.check(text)]);
  const top = yaml().language.parser.parse(text).topNode;
  const placed = (/** @type {"error" | "warning"} */ severity) => (/** @type {string} */ message) => ({ ...placeOf(text, top, message), severity, message });
  return [...errors.map(placed("error")), ...warnings.map(placed("warning"))];
}
