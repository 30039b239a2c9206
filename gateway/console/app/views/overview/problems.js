/** What is wrong, and where to look: shown before everything else, and absent if there is nothing. */

import { html } from "../../../vendor/ui.js";
import { Moment } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { now, span } from "../../state/clock.js";
import { outage } from "../../state/outage.js";
import { useReading } from "../../state/reading.js";
import { client, limits, live, may } from "../../state/session.js";
import { NamedRun, NamedRuns, TextWithRuns } from "../runs/name.js";

const SHOWN = 5;
const LONG_WAIT = 60;
const MOST_WEBHOOKS = 1000;
const NO_WEBHOOKS = { dead: 0, failing: 0 };

/** @typedef {import("../../../greenroom.js").WorkerState} WorkerState */
/** @typedef {{ key: string, tone: "bad" | "note", text: any }} Problem */

/** @param {readonly WorkerState[]} workers */
export function useProblems(workers) {
  const webhooks = useReading(readWebhooks, ["webhook_changed"]);
  return [
    ...ofConnections(workers),
    ...ofBodies(),
    ...ofSchedules(),
    ...ofWebhooks(webhooks.value ?? NO_WEBHOOKS, webhooks.at),
    ...ofLimits(),
    ...ofWaits(),
  ].sort((one, other) => Number(other.tone === "bad") - Number(one.tone === "bad"));
}

/** `gone`: those that are over, and stay because a person is near. @param {{ shown: { value: Problem, gone: boolean }[] }} props */
export function Problems({ shown }) {
  if (shown.length === 0) return null;
  return html`<ul class="problems" aria-label="Problems">
    ${shown.map(({ value: { key, tone, text }, gone }) => html`<li key=${key} class="${tone} ${gone ? "gone" : ""}">${text}</li>`)}
  </ul>`;
}

/** @param {readonly WorkerState[]} workers @returns {Problem[]} */
function ofConnections(workers) {
  /** @type {Problem[]} */
  const found = [];
  const down = outage();
  if (down) {
    found.push({ key: "outage", tone: "bad", text: html`The engine was unavailable at <${Moment} at=${down.at} />: <${Text} value=${down.message} />` });
  }
  for (const [id, { status }] of live.executors.value) {
    if (status !== "disconnected") continue;
    found.push({ key: `executor ${id}`, tone: "bad", text: html`Executor <${Text} value=${id} mono /> is disconnected.` });
  }
  const offline = workers.filter(({ status }) => status === "offline");
  if (offline.length > 0) {
    const names = offline.slice(0, SHOWN).map(({ id }) => html`<${Text} key=${id} value=${id} mono />${" "}`);
    const text = html`${offline.length === 1 ? "A worker is" : `${offline.length} workers are`} offline: <a href=${to("workers")}>${names}</a>`;
    found.push({ key: "workers", tone: "bad", text });
  }
  return found;
}

/** @returns {Problem[]} */
function ofBodies() {
  /** @type {Problem[]} */
  const found = [];
  const { abandoned, detached } = live.survey.value;
  const stuck = abandoned.filter(({ id, handle }) => live.handle(handle)?.active_run === id); // until the handle is released
  if (stuck.length > 0) {
    const subject = stuck.length === 1 ? "A body" : `${stuck.length} bodies`;
    found.push({ key: "stuck", tone: "bad", text: html`${subject} did not end when told to: <${NamedRuns} runs=${stuck} most=${SHOWN} />` });
  }
  for (const { run, text } of live.rates.blockedLately(now.value)) {
    found.push({ key: `loop ${run}`, tone: "bad", text: html`Run <${NamedRun} run=${run} /> <${Text} value=${text} />.` });
  }
  if (detached.length > 0) {
    const subject = detached.length === 1 ? "A body executes" : `${detached.length} bodies execute`;
    const text = html`${subject} without a slot since the lanes were reset: <${NamedRuns} runs=${detached} most=${SHOWN} />`;
    found.push({ key: "detached", tone: "note", text });
  }
  return found;
}

/** Those whose last firing was refused, until they fire again or are paused. @returns {Problem[]} */
function ofSchedules() {
  const refused = live.schedules.value.map(([, one]) => one).filter(({ paused, last_fired, last_run }) => !paused && last_fired !== null && last_run === null);
  /** @type {Problem[]} */
  const found = refused.slice(0, SHOWN).map(({ name, last_fired, last_error }) => ({
    key: `schedule ${name}`,
    tone: "bad",
    text: html`Schedule <a href=${to("schedules", [name])}><${Text} value=${name} /></a> was refused at <${Moment} at=${last_fired} />:${" "}
      <${TextWithRuns} value=${last_error ?? ""} />`,
  }));
  if (refused.length > SHOWN) {
    const text = html`<a href=${to("schedules")}>${refused.length - SHOWN} more schedules</a> were refused.`;
    found.push({ key: "schedules", tone: "bad", text });
  }
  return found;
}

/** How many webhooks are dead, and how many fail. */
async function readWebhooks() {
  if (!may("operator") || limits.peek()) return NO_WEBHOOKS;
  const { webhooks } = client();
  const [dead, failing] = await Promise.all([webhooks.dead({ limit: MOST_WEBHOOKS }), webhooks.failing({ limit: MOST_WEBHOOKS })]);
  return { dead: dead.length, failing: failing.length };
}

/** @param {{ dead: number, failing: number }} webhooks @param {number} at when they were read @returns {Problem[]} */
function ofWebhooks({ dead, failing }, at) {
  const link = (/** @type {number} */ count, /** @type {string} */ what) => {
    const least = count === MOST_WEBHOOKS ? "At least " : "";
    return html`<a href=${to("webhooks")}>${least}${count.toLocaleString()} ${what} ${count === 1 ? "webhook" : "webhooks"}</a>`;
  };
  /** @type {Problem[]} */
  const found = [];
  if (dead > 0) found.push({ key: "dead", tone: "bad", text: html`${link(dead, "dead")}: events could not be delivered.` });
  if (failing > 0) {
    found.push({ key: "failing", tone: "note", text: html`${link(failing, "failing")} at <${Moment} at=${at} />: the deliveries are retried.` });
  }
  return found;
}

/** @returns {Problem[]} */
function ofLimits() {
  /** @type {Problem[]} */
  const found = [];
  const counts = live.counts.value;
  if (counts?.engine.draining) {
    found.push({ key: "draining", tone: "note", text: "The engine is draining: it accepts no new runs, and queued runs do not start until it is resumed." });
  }
  if (counts?.engine.max_concurrent === 0) {
    found.push({ key: "paused", tone: "note", text: "The global limit is 0: no run starts." });
  }
  for (const [name, lane] of Object.entries(counts?.lanes ?? {})) {
    if (lane.queued === 0 || !(lane.paused || lane.limit === 0)) continue;
    const why = lane.paused ? "is paused" : "has the limit 0";
    found.push({ key: `lane ${name}`, tone: "note", text: html`Lane <${Text} value=${name} /> ${why}; ${lane.queued} queued.` });
  }
  return found;
}

/** @returns {Problem[]} */
function ofWaits() {
  /** @type {Problem[]} */
  const found = [];
  for (const [lane, { run, since }] of live.survey.value.waits) {
    const waited = now.value - since;
    if (waited < LONG_WAIT) continue;
    const text = html`Run <${NamedRun} run=${run} /> has waited ${span(waited)} in lane <${Text} value=${lane} />.`;
    found.push({ key: `wait ${lane}`, tone: "note", text });
  }
  return found;
}
