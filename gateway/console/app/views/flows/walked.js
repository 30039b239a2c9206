/** How far a run has walked its flow: the state of each node, and the edges that it took. Pure. */

import { DEFAULT_ACTION } from "./outline.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */
/** @typedef {import("../../../greenroom.js").NodeRan} NodeRan */
/** @typedef {import("./outline.js").Link} Link */

/**
 * @typedef {object} NodeState
 * @property {string} status one of the words for runs, so that it looks the same
 * @property {number} visits
 * @property {number} attempts of the last visit
 * @property {number} done the branches of the last visit that ended well
 * @property {number} failed the other branches that ended
 * @property {string} error
 */
/** @typedef {Map<string, string>} Ends the last `status` of each action of a node */
/** @typedef {{ states: Map<string, NodeState>, ends: Map<string, Ends> }} Walked `ends`: by node */

const ENDS = { ok: "succeeded", error: "failed", cancelled: "cancelled", timeout: "timed_out" };

/** The word for how a node run ended. @param {string} status */
export const ended = (status) => ENDS[/** @type {keyof ENDS} */ (status)] ?? status;

/** @param {readonly GreenroomEvent[]} events of a run @param {string} status of the run @returns {Walked} */
export function walked(events, status) {
  /** @type {Map<string, NodeState & { last: string }>} */
  const states = new Map();
  /** @type {Map<string, Ends>} */
  const ends = new Map();
  for (const event of events) {
    if (event.type !== "node_started" && event.type !== "node_ran") continue;
    let state = states.get(event.node);
    if (state?.visits !== event.visit) {
      state = { status: "running", visits: event.visit, attempts: 0, done: 0, failed: 0, error: "", last: "" };
      states.set(event.node, state);
    }
    if (event.type === "node_started") state.status = "running";
    else if (event.branch !== undefined) count(state, event);
    else finish(state, event);
    if (event.type !== "node_ran" || event.action === undefined) continue;
    const own = ends.get(event.node) ?? new Map();
    ends.set(event.node, own.set(event.action, event.status));
  }
  for (const state of states.values()) if (state.status === "running") state.status = now(state.last, status);
  return { states, ends };
}

/** @param {NodeState} state @param {NodeRan} event */
function count(state, event) {
  if (event.status === "ok") state.done += 1;
  else state.failed += 1;
}

/** @param {NodeState & { last: string }} state @param {NodeRan} event */
function finish(state, event) {
  state.attempts = event.attempt;
  state.error = event.error ?? "";
  state.last = ended(event.status);
  state.status = event.action === undefined && event.status !== "ok" ? "running" : state.last; // another attempt can follow
}

/** The state of a node that has not ended. @param {string} last how its last attempt ended @param {string} status */
function now(last, status) {
  if (status === "running" || status === "suspended" || status === "queued" || status === "cancelling") return status;
  return last || "cancelled"; // the run ended during the node
}

/**
 * Which links the run took: those of the actions of their nodes; the default one, where an action has no link; and those
 * by which it entered the flow and its subflows. A failure without a link that handles it ends the flow.
 * @param {readonly Link[]} links
 * @param {Walked} walk
 * @returns {boolean[]}
 */
export function taken(links, { states, ends }) {
  const linked = linkedBy(links);
  return links.map((link) => {
    if (link.node === "") return states.has(link.target);
    return [...(ends.get(link.node) ?? [])].some(([action, status]) => takesLink(link, linked, action, status));
  });
}

/** Whether a node takes an edge when it ends so. @param {readonly Link[]} links @param {string} node @param {string} action @param {string} status */
export function takes(links, node, action, status) {
  const linked = linkedBy(links);
  return links.some((link) => link.node === node && takesLink(link, linked, action, status));
}

/** @param {Link} link @param {Set<string>} linked @param {string} ended the action @param {string} status */
function takesLink({ node, action, failures }, linked, ended, status) {
  if (status !== "ok" && !failures.includes(status)) return false;
  return action === "" || action === ended || (action === DEFAULT_ACTION && !linked.has(`${node}\n${ended}`));
}

/** The actions that have links, by node. @param {readonly Link[]} links */
const linkedBy = (links) => new Set(links.map(({ node, action }) => `${node}\n${action}`));
