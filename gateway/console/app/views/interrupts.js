/** The inbox: all open interrupts, newest first. Keys act on the one that has the focus. */

import { html, useSignal } from "../../vendor/ui.js";
import { Nothing } from "../parts/basic.js";
import { News } from "../parts/news.js";
import { useShortcuts } from "../state/keys.js";
import { live } from "../state/session.js";
import { useHeld } from "./run/held.js";
import { Interrupts, newestFirst } from "./run/interrupts.js";

const PAGE = 50;

export function Inbox() {
  const shown = useSignal(PAGE);
  useShortcuts(keys, []);
  const all = newestFirst(live.interrupts.value);
  const { list, closed, added, release, handlers } = useHeld(all);
  return html`<section aria-labelledby="inbox-title">
    <div class="title">
      <h1 id="inbox-title">Interrupts</h1>
      <span class="faint number" aria-live="polite">${all.length.toLocaleString()} open</span>
      <${News} count=${added} what="interrupt" show=${release} />
    </div>
    ${all.length === 0 && list.length === 0 && html`<${Nothing}>Nobody waits for an answer.<//>`}
    <div ...${handlers}><${Interrupts} list=${list.slice(0, shown.value)} closed=${closed} linked /></div>
    ${list.length > shown.value && html`<button onClick=${() => (shown.value += 5 * PAGE)}>${list.length - shown.value} more</button>`}
  </section>`;
}

function keys() {
  const current = () => document.activeElement?.closest(".interrupt") ?? null;
  /** @param {1 | -1} by */
  const move = (by) => {
    const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".interrupt")]);
    const index = all.findIndex((one) => one === current());
    all.at(Math.max(0, Math.min(all.length - 1, index + by)))?.focus();
  };
  /** @param {string} selector */
  const press = (selector) => /** @type {HTMLElement | null} */ (current()?.querySelector(selector) ?? null)?.click();
  return [
    { key: "j", what: "Next interrupt", run: () => move(1) },
    { key: "k", what: "Previous interrupt", run: () => move(-1) },
    { key: "a", what: "Approve the focused interrupt", run: () => press("button.primary") },
    { key: "d", what: "Deny the focused interrupt", run: () => press("button.danger") },
    { key: "Enter", what: "Open the run of the focused interrupt", run: () => press("a") },
  ];
}
