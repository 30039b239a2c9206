/** The lanes with their limits and rules; whoever may, changes them. */

import { html, useSignal } from "../../../vendor/ui.js";
import { Choice } from "../../parts/choice.js";
import { confirmed } from "../../parts/dialog.js";
import { Field } from "../../parts/field.js";
import { Limit } from "../../parts/limit.js";
import { Text, visible } from "../../parts/text.js";
import { client, live, may, seesWholeLanes } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";

const PAGE = 100;
const RATE_PER = { lane: "the lane", key: "each key" };

/** @typedef {import("../../../greenroom.js").LaneCounts} LaneCounts */
/** @typedef {import("../../../greenroom.js").LaneRules} LaneRules */

/** @param {{ lanes: Record<string, LaneCounts> }} props */
export function Lanes({ lanes }) {
  live.frame.value; // rules are no signal
  const shown = useSignal(PAGE);
  const names = Object.keys(lanes).sort();
  return html`<section class="card" aria-labelledby="rules-title">
    <h2 id="rules-title">Lanes and their rules</h2>
    <div class="rules">
      ${names.slice(0, shown.value).map((name) => html`<${Lane} key=${name} name=${name} lane=${lanes[name]} rules=${live.rules(name)} />`)}
      ${names.length > shown.value && html`<button class="quiet" onClick=${() => (shown.value += PAGE)}>${names.length - shown.value} more</button>`}
      ${may("admin") && html`<${NewLane} most=${live.counts.value?.engine.max_concurrent ?? 1} />`}
    </div>
  </section>`;
}

/** A lane exists as soon as it has a limit. @param {{ most: number }} props */
function NewLane({ most }) {
  /** @param {any} event */
  const submit = async (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    const given = new FormData(form);
    const [name, limit] = [String(given.get("lane")).trim(), Number(given.get("limit"))];
    const set = await attempt(async () => {
      await client().setConcurrency(name, limit);
      return true;
    }, `lane ${name} has the limit ${limit}`);
    if (set) form.reset();
  };
  return html`<details>
    <summary>New lane</summary>
    <form class="form" aria-label="New lane" onSubmit=${submit}>
      <${Field} name="lane" label="Name" required />
      <${Field} name="limit" label="Limit" type="number" value=${most} required />
      <div class="wide"><button class="primary">Create the lane</button></div>
    </form>
  </details>`;
}

/** @param {{ name: string, lane: LaneCounts, rules: LaneRules }} props */
function Lane({ name, lane: { limit, queued }, rules }) {
  const open = useSignal(false);
  const count = Object.keys(rules).length;
  return html`<details onToggle=${(/** @type {any} */ event) => (open.value = event.currentTarget.open)}>
    <summary>
      <strong><${Text} value=${name} /></strong>${" "}
      <span class="faint">${limit === null ? "without a limit of its own" : `limit ${limit}`}, ${count === 0 ? "no rules" : summary(rules)}</span>
    </summary>
    ${open.value && may("admin") && html`<${Change} key=${JSON.stringify(rules)} name=${name} limit=${limit} rules=${rules} />`}
    ${open.value &&
    may("operator") &&
    seesWholeLanes() &&
    queued > 0 &&
    html`<button class="danger" onClick=${() => clear(name, queued)}>Cancel ${queued.toLocaleString()} queued</button>`}
  </details>`;
}

/** @param {LaneRules} rules */
function summary(rules) {
  const written = (/** @type {unknown} */ value) => (typeof value === "object" ? JSON.stringify(value) : value);
  return visible(Object.entries(rules).map(([name, value]) => `${name}=${written(value)}`).join(", "));
}

/** @param {{ name: string, limit: number | null, rules: LaneRules }} props */
function Change({ name, limit, rules }) {
  const problem = useSignal("");
  const of = `of lane ${name}`;
  /** @param {any} event */
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    try {
      const changed = changes(rules, given);
      problem.value = "";
      attempt(() => client().setLane(name, changed), `the rules ${of} are changed`);
    } catch (error) {
      problem.value = /** @type {Error} */ (error).message;
    }
  };
  return html`
    <div class="actions">
      ${limit === null
        ? html`<button onClick=${() => attempt(() => client().setConcurrency(name, live.counts.value?.engine.max_concurrent ?? 1))}>Set a limit</button>`
        : html`<span>Limit</span> <${Limit} label=${`the limit ${of}`} value=${limit} set=${(/** @type {number} */ next) => client().setConcurrency(name, next)} />
            <button class="quiet" onClick=${() => attempt(() => client().setConcurrency(name, null))}>Remove the limit</button>`}
    </div>
    <form class="form" aria-label=${`Rules ${of}`} onSubmit=${submit}>
      <${Field} name="fair_by" label="Turns by this parameter" value=${rules.fair_by} placeholder="tenant" />
      <${Field} name="weights" label="Weights, as JSON" value=${rules.weights && JSON.stringify(rules.weights)} placeholder='{"gold": 3}' />
      <${Field} name="limit_per_key" label="Limit per key" type="number" value=${rules.limit_per_key} />
      <${Field} name="rate" label="Rate of starts" value=${rules.rate} placeholder="100/min" />
      <${Field} name="burst" label="Burst" type="number" value=${rules.burst} />
      <${Choice} name="rate_per" label="Rate for" value=${rules.rate_per ?? "lane"} options=${RATE_PER} />
      <${Field} name="priority" label="Priority of its runs" type="number" value=${rules.priority} placeholder="0" />
      ${problem.value && html`<p class="error-text wide" role="alert"><${Text} value=${problem.value} /></p>`}
      <div class="wide"><button class="primary">Save the rules</button></div>
    </form>`;
}

const FIELDS = ["fair_by", "weights", "limit_per_key", "rate", "burst", "rate_per", "priority"];
const NUMBERS = new Set(["limit_per_key", "burst", "priority"]);

/**
 * The rules that the form changes; null removes one. Those that the form does not contain stay.
 * @param {LaneRules} rules
 * @param {FormData} given
 */
function changes(rules, given) {
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const name of FIELDS) {
    const before = /** @type {Record<string, unknown>} */ (rules)[name] ?? null;
    const value = read(name, String(given.get(name) ?? "").trim());
    if (JSON.stringify(value) !== JSON.stringify(before)) found[name] = value;
  }
  return found;
}

/** @param {string} name @param {string} text */
function read(name, text) {
  if (text === "" || (name === "rate_per" && text === "lane")) return null;
  if (name === "weights") return weights(text);
  return NUMBERS.has(name) ? Number(text) : text;
}

/** @param {string} text */
function weights(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the weights are not valid JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/** @param {string} lane @param {number} queued */
async function clear(lane, queued) {
  const body = html`<p>The ${queued.toLocaleString()} queued runs of lane <${Text} value=${lane} /> are cancelled.</p>`;
  if (await confirmed({ title: "Cancel the queued runs?", body, label: "Cancel them" })) {
    await attempt(() => client().clearLane(lane), (count) => `${count} runs cancelled`);
  }
}
