/** The lanes with what executes and waits in each; whoever may, moves their limits. */

import { html, useSignal } from "../../../vendor/ui.js";
import { FilterLink } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { client, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";

/** @typedef {import("../../../greenroom.js").Counts} Counts */
/** @typedef {import("../../../greenroom.js").LaneCounts} LaneCounts */

const LEAST_RANGE = 10;

/** @param {{ counts: Counts }} props */
export function Lanes({ counts }) {
  const { max_concurrent: most, executing } = counts.engine;
  const lanes = Object.entries(counts.lanes).sort(([one], [other]) => Number(other === "main") - Number(one === "main") || one.localeCompare(other));
  return html`<section aria-labelledby="lanes-title">
    <h2 id="lanes-title">Lanes</h2>
    <div class="lanes card" role="table" aria-labelledby="lanes-title">
      <div class="lane lane-head" role="row">
        <span role="columnheader">Lane</span>
        <span role="columnheader">Executing</span>
        <span role="columnheader">Queued</span>
        <span role="columnheader">Limit</span>
        <span role="columnheader"><span class="hidden">Actions</span></span>
      </div>
      <div class="lane all" role="row">
        <strong role="cell">all lanes</strong>
        <span role="cell"><${Use} executing=${executing} limit=${most} /></span>
        <span role="cell" class="number">${counts.engine.queued.toLocaleString()}</span>
        <span role="cell"><${Limit} label="the global limit" value=${most} set=${(/** @type {number} */ limit) => client().setMaxConcurrent(limit)} /></span>
        <span role="cell"></span>
      </div>
      ${lanes.map(([name, lane]) => html`<${Lane} key=${name} name=${name} lane=${lane} most=${most} />`)}
    </div>
  </section>`;
}

/** @param {{ name: string, lane: LaneCounts, most: number }} props */
function Lane({ name, lane, most }) {
  const { executing, queued, limit, paused } = lane;
  const flip = () => attempt(() => (paused ? client().resumeLane(name) : client().pauseLane(name)));
  return html`<div class="lane" role="row">
    <span role="cell"><${FilterLink} query=${{ lane: name }} value=${name} />${paused && html` <span class="tag">paused</span>`}</span>
    <span role="cell"><${Use} executing=${executing} limit=${limit ?? most} /></span>
    <span role="cell" class="number">${queued.toLocaleString()}</span>
    <span role="cell">
      ${limit === null
        ? html`<span class="faint">as all lanes</span>`
        : html`<${Limit} label=${`the limit of lane ${name}`} value=${limit} set=${(/** @type {number} */ next) => client().setConcurrency(name, next)} />`}
    </span>
    <span role="cell">
      ${may("admin") && html`<button class="quiet" onClick=${flip}>${paused ? "Resume" : "Pause"}<span class="hidden"> lane <${Text} value=${name} /></span></button>`}
    </span>
  </div>`;
}

/** @param {{ executing: number, limit: number }} props */
function Use({ executing, limit }) {
  return html`<span class="use">
    <meter min="0" max=${Math.max(1, limit, executing)} value=${executing} aria-label="slots in use"></meter>
    <span class="number">${executing}</span>
  </span>`;
}

/**
 * A limit. While it is moved, the slider shows where it would be; it is set when it is let go.
 * @param {{ label: string, value: number, set: (limit: number) => Promise<unknown> }} props
 */
function Limit({ label, value, set }) {
  const moved = useSignal(/** @type {number | null} */ (null));
  if (!may("admin")) return html`<span class="number">${value.toLocaleString()}</span>`;
  const shown = moved.value ?? value;
  /** @param {any} event */
  const change = async (event) => {
    const next = event.currentTarget.valueAsNumber;
    if (Number.isInteger(next) && next >= 0 && next !== value) await attempt(() => set(next));
    moved.value = null;
  };
  return html`<span class="limit">
    <input
      type="range"
      min="0"
      max=${Math.max(LEAST_RANGE, 2 * value)}
      value=${shown}
      aria-label=${`Change ${label}`}
      onInput=${(/** @type {any} */ event) => (moved.value = event.currentTarget.valueAsNumber)}
      onChange=${change}
    />
    <input type="number" min="0" value=${shown} aria-label=${label} onChange=${change} />
  </span>`;
}
