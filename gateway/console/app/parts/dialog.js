/**
 * Questions before an action that cannot be undone: `await ask({…})` resolves to the name of the chosen button, or to
 * null, at once if the connection is lost, and when the address of the page changes or the person has to log in. The
 * browser's own dialog keeps the focus inside, and gives it back.
 */

import { html, signal, useLayoutEffect, useRef } from "../../vendor/ui.js";
import { address } from "../state/address.js";
import { lost } from "../state/session.js";
import { NOT_CONNECTED, toast } from "../state/toasts.js";

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {any} [body]
 * @property {{ name: string, label: string, danger?: boolean }[]} choices
 * @property {boolean} [local] whether nothing is sent: it is asked without a connection, too
 */

/** @type {import("../../vendor/ui.js").Signal<(Question & { resolve: (name: string | null) => void }) | null>} */
const question = signal(null);

/** @param {Question} asked @returns {Promise<string | null>} */
export function ask(asked) {
  if (asked.choices.length > 0 && !asked.local && lost.peek()) {
    toast(NOT_CONNECTED, "error");
    return Promise.resolve(null);
  }
  return new Promise((resolve) => (question.value = { ...asked, resolve }));
}

/**
 * Ask whether to do something that cannot be undone; `label` is the text of the button that does it.
 * @param {{ title: string, body: any, label: string, local?: boolean }} asked
 */
export async function confirmed({ title, body, label, local }) {
  return (await ask({ title, body, local, choices: [{ name: "yes", label, danger: true }] })) !== null;
}

/** @param {string | null} name */
function answer(name) {
  const asked = question.peek();
  question.value = null;
  asked?.resolve(name);
}

/** Where questions appear. The shell has one while a person is logged in. */
export function Dialogs() {
  const asked = question.value;
  useLayoutEffect(() => () => answer(null), []);
  return asked && html`<${Dialog} key=${asked.title} asked=${asked} />`;
}

/** @param {{ asked: Question & { resolve: (name: string | null) => void } }} props */
function Dialog({ asked }) {
  const place = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const here = address.value;
  const first = useRef(here);
  useLayoutEffect(() => void place.current?.showModal(), []);
  useLayoutEffect(() => {
    if (here !== first.current) choose(null); // the question is about what another view shows
  }, [here]);
  /** @param {string | null} name */
  const choose = (name) => {
    place.current?.close();
    answer(name);
  };
  return html`<dialog ref=${place} aria-labelledby="dialog-title" onCancel=${() => choose(null)}>
    <h2 id="dialog-title">${asked.title}</h2>
    ${asked.body && html`<div class="dialog-body">${asked.body}</div>`}
    <div class="actions end">
      <button autofocus onClick=${() => choose(null)}>Back</button>
      ${asked.choices.map(
        ({ name, label, danger = false }) =>
          html`<button key=${name} class=${danger ? "danger" : "primary"} onClick=${() => choose(name)}>${label}</button>`,
      )}
    </div>
  </dialog>`;
}
