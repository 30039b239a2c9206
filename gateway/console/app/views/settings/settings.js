/** The settings: the engine's limits and lanes, draining and reset, and those of this browser. */

import { html } from "../../../vendor/ui.js";
import { confirmed } from "../../parts/dialog.js";
import { Limit } from "../../parts/limit.js";
import { Text } from "../../parts/text.js";
import { caller, client, limits, limitsInWords, live, may, role } from "../../state/session.js";
import { THEMES, theme } from "../../state/theme.js";
import { attempt } from "../../state/toasts.js";
import { Lanes } from "./rules.js";

const ROLES = {
  viewer: "reads everything except webhooks",
  operator: "also starts, cancels, reruns and answers runs, sends messages to them, edits drafts of handles, edits and publishes flows, and manages schedules and webhooks",
  admin: "also changes limits and rules, drains, and resets",
};

export function Settings() {
  const counts = live.counts.value;
  if (!counts) return null;
  return html`<section aria-labelledby="settings-title">
    <div class="title"><h1 id="settings-title">Settings</h1></div>
    <${Engine} engine=${counts.engine} />
    <${Lanes} lanes=${counts.lanes} />
    <div class="columns"><${Session} /><${Browser} /></div>
  </section>`;
}

/** @param {{ engine: import("../../../greenroom.js").EngineState }} props */
function Engine({ engine: { max_concurrent: limit, draining } }) {
  const setLimit = (/** @type {number} */ next) => client().setMaxConcurrent(next);
  const drain = async () => {
    const body = html`<p>The engine accepts no new runs. Runs that have begun continue to their end, with their child runs.</p>
      <p>Queued runs do not start until you choose Resume.</p>`;
    if (await confirmed({ title: "Drain the engine?", body, label: "Drain" })) {
      await attempt(() => client().drain(), "the engine is draining");
    }
  };
  return html`<section class="card" aria-labelledby="engine-title">
    <h2 id="engine-title">Engine</h2>
    <dl class="about">
      <div><dt>global limit</dt><dd><${Limit} label="the global limit" value=${limit} set=${setLimit} /></dd></div>
      <div><dt>new runs</dt><dd>${draining ? html`<span class="state draining">draining</span> refused` : "accepted"}</dd></div>
    </dl>
    ${may("admin") &&
    html`<div class="actions">
      ${draining
        ? html`<button class="primary" onClick=${() => attempt(() => client().resume(), "the engine accepts runs")}>Resume</button>`
        : html`<button onClick=${drain}>Drain</button>`}
      <button class="danger" onClick=${reset}>Reset lanes</button>
    </div>`}
  </section>`;
}

/** @param {number} count of executing runs */
const slotsOf = (count) => (count === 1 ? "The slot of the one executing run is" : `The slots of all ${count.toLocaleString()} executing runs are`);

async function reset() {
  const count = live.counts.peek()?.engine.executing ?? 0;
  const body = html`<p>${slotsOf(count)} freed in all lanes, whether their bodies are stuck or not, so queued runs start at once.</p>
    <p>The bodies that execute now are not cancelled. They continue without a slot, so for that time more bodies can execute than the
      limits allow. Each keeps its handle until it ends.</p>
    <p>Queues stay as they are. Draining ends. For a single stuck run, cancel it instead.</p>`;
  if (await confirmed({ title: "Reset the lanes?", body, label: "Reset" })) {
    await attempt(() => client().resetLanes(), "the lanes are reset");
  }
}

/** Who this page is, and what each role may do. */
function Session() {
  return html`<section class="card" aria-labelledby="session-title">
    <h2 id="session-title">Token</h2>
    <p>
      ${caller.value ? html`<${Text} value=${caller.value} />, with the role ` : "The server requires no token. Your role is "}
      <strong>${role.value}</strong>.
      ${limits.value && html` It is limited to <${Text} value=${limitsInWords()} />.`}
    </p>
    <dl class="about">
      ${Object.entries(ROLES).map(
        ([name, what]) => html`<div key=${name}>
          <dt>${name === role.value ? html`<strong>${name}</strong>` : name}</dt>
          <dd>${what}</dd>
        </div>`,
      )}
    </dl>
  </section>`;
}

function Browser() {
  return html`<section class="card" aria-labelledby="browser-title">
    <h2 id="browser-title">This browser</h2>
    <div class="form"><label><span>Colors</span>
      <select value=${theme.value} onChange=${(/** @type {any} */ event) => (theme.value = event.currentTarget.value)}>
        ${THEMES.map((name) => html`<option key=${name} value=${name}>${name === "system" ? "as the system" : name}</option>`)}
      </select>
    </label></div>
  </section>`;
}
