/** What is wrong, and where to look: shown before everything else, and absent if there is nothing. */

import { html } from "../../../vendor/ui.js";
import { RunLink } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { connection, live } from "../../state/session.js";

const SHOWN = 5;

export function Problems() {
  live.frame.value;
  const found = problems();
  if (found.length === 0) return null;
  return html`<ul class="problems" aria-label="Problems">
    ${found.map(({ key, tone, text }) => html`<li key=${key} class=${tone}>${text}</li>`)}
  </ul>`;
}

/** @returns {{ key: string, tone: "bad" | "note", text: any }[]} */
function problems() {
  const found = [];
  const counts = live.counts.value;
  if (connection.value?.status === "reconnecting") {
    found.push({ key: "connection", tone: "bad", text: "The connection is lost: what this page shows is from before." });
  }
  const stuck = [];
  for (const run of live.runs.values()) if (isStuck(run)) stuck.push(run);
  if (stuck.length > 0) found.push({ key: "stuck", tone: "bad", text: stuckText(stuck) });
  for (const [id, { status }] of live.executors.value) {
    if (status !== "disconnected") continue;
    found.push({ key: id, tone: "bad", text: html`Executor <${Text} value=${id} mono /> is disconnected.` });
  }
  if (counts?.engine.draining) {
    found.push({ key: "draining", tone: "note", text: "The engine is draining: it accepts no new runs." });
  }
  if (counts?.engine.max_concurrent === 0) {
    found.push({ key: "paused", tone: "note", text: "The global limit is 0: no run starts." });
  }
  for (const [name, lane] of Object.entries(counts?.lanes ?? {})) {
    if (lane.queued === 0 || !(lane.paused || lane.limit === 0)) continue;
    const why = lane.paused ? "is paused" : "has the limit 0";
    found.push({ key: `lane ${name}`, tone: "note", text: html`Lane <${Text} value=${name} /> ${why}; ${lane.queued} queued.` });
  }
  return /** @type {any} */ (found);
}

/**
 * Whether a body executes without a slot: after a reset, or as the abandoned body of a run that has ended.
 * @param {import("../../../greenroom.js").RunRecord} run
 */
function isStuck({ id, handle, detached, reason }) {
  return detached || (reason === "abandoned" && live.handle(handle)?.active_run === id);
}

/** @param {import("../../../greenroom.js").RunRecord[]} runs */
function stuckText(runs) {
  const more = runs.length > SHOWN ? ` and ${runs.length - SHOWN} more` : "";
  return html`${runs.length === 1 ? "A body" : `${runs.length} bodies`} did not end when told to:${" "}
    ${runs.slice(0, SHOWN).map(({ id }) => html`<${RunLink} key=${id} id=${id} short />${" "}`)}${more}`;
}
