/** The lanes with what executes and waits in each; whoever may, moves their limits. */

import { html } from "../../../vendor/ui.js";
import { FilterLink } from "../../parts/basic.js";
import { Limit, Use } from "../../parts/limit.js";
import { Text } from "../../parts/text.js";
import { useKept } from "../../state/kept.js";
import { client, live, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";

/** @typedef {import("../../../greenroom.js").Counts} Counts */
/** @typedef {import("../../../greenroom.js").LaneCounts} LaneCounts */

/** `holds`: whether the lanes stay in place, because a person is at them. @param {{ counts: Counts, holds: boolean }} props */
export function Lanes({ counts, holds }) {
  const { max_concurrent: most, executing } = counts.engine;
  const { delayed, inHandles } = live.survey.value;
  const queued = Object.values(counts.lanes).reduce((sum, lane) => sum + lane.queued, 0);
  const lanes = Object.entries(counts.lanes).sort(([one], [other]) => Number(other === "main") - Number(one === "main") || one.localeCompare(other));
  const { shown, added } = useKept(lanes, holds);
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
        <span role="cell"><${Use} used=${executing} limit=${most} /></span>
        <span role="cell" class="number" data-label="queued">${queued.toLocaleString()}</span>
        <span role="cell" data-label="limit"><${Limit} label="the global limit" value=${most} set=${(/** @type {number} */ limit) => client().setMaxConcurrent(limit)} /></span>
        <span role="cell"></span>
      </div>
      ${[...shown.map(({ key, value }) => /** @type {const} */ ([key, value])), ...added].map(
        ([name, lane]) => html`<${Lane} key=${name} name=${name} lane=${lane} most=${most} />`,
      )}
      ${delayed > 0 && html`<${Outside} label="delayed until their time" count=${delayed} />`}
      ${inHandles > 0 && html`<${Outside} label="waiting for their handles" count=${inHandles} />`}
    </div>
  </section>`;
}

/** Queued runs that are not in the queue of a lane yet. @param {{ label: string, count: number }} props */
function Outside({ label, count }) {
  return html`<div class="lane" role="row">
    <span role="cell" class="faint">${label}</span>
    <span role="cell"></span>
    <span role="cell" class="number" data-label="queued">${count.toLocaleString()}</span>
    <span role="cell"></span>
    <span role="cell"></span>
  </div>`;
}

/** @param {{ name: string, lane: LaneCounts, most: number }} props */
function Lane({ name, lane, most }) {
  const { executing, queued, limit, paused } = lane;
  const flip = () => attempt(() => (paused ? client().resumeLane(name) : client().pauseLane(name)));
  return html`<div class="lane" role="row">
    <span role="cell"><${FilterLink} query=${{ lane: name }} value=${name} />${paused && html` <span class="tag">paused</span>`}</span>
    <span role="cell"><${Use} used=${executing} limit=${limit ?? most} /></span>
    <span role="cell" class="number" data-label="queued">${queued.toLocaleString()}</span>
    <span role="cell" data-label="limit">
      ${limit === null
        ? html`<span class="faint">as all lanes</span>`
        : html`<${Limit} label=${`the limit of lane ${name}`} value=${limit} set=${(/** @type {number} */ next) => client().setConcurrency(name, next)} />`}
    </span>
    <span role="cell">
      ${may("admin") && html`<button class="quiet" onClick=${flip}>${paused ? "Resume" : "Pause"}<span class="hidden"> lane <${Text} value=${name} /></span></button>`}
    </span>
  </div>`;
}
