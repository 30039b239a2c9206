/**
 * The filter of the list of runs, as it stands in the address: `?status=failed&lane=images&tag=user%3Dalice`. Pure: the
 * same rules as `protocol/run_filter.py`, and `text`, which a run contains anywhere.
 */

import { hasEnded, writeExact } from "../../../greenroom.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("../../../greenroom.js").RunStatus} RunStatus */

export const PENDING = ["queued", "running", "suspended", "cancelling"];
export const ENDED = ["succeeded", "failed", "cancelled", "timed_out", "rejected"];
export const STATUSES = [...PENDING, ...ENDED];

export const CANCELLABLE = ["queued", "running", "suspended"];
export const FAILED = ["failed", "timed_out", "rejected"];

const NAMES = ["status", "job", "flow", "handle", "lane", "parent", "tag", "since", "until", "text"];
const EQUAL = /** @type {const} */ (["job", "handle", "lane", "parent"]);

/**
 * @typedef {object} RunFilter
 * @property {Set<string>} status none means any
 * @property {string} job
 * @property {string} flow
 * @property {string} handle
 * @property {string} lane
 * @property {string} parent the id of the run that has called the runs
 * @property {[string, string][]} tags
 * @property {number | null} since Unix seconds
 * @property {number | null} until
 * @property {string} text
 * @property {string[]} problems what the filter cannot mean; then it selects no run
 */

/** @param {URLSearchParams} query @returns {RunFilter} */
export function filterOf(query) {
  const read = (/** @type {string} */ name) => query.get(name) ?? "";
  return {
    status: new Set(query.getAll("status").filter((one) => STATUSES.includes(one))),
    job: read("job"),
    flow: read("flow"),
    handle: read("handle"),
    lane: read("lane"),
    parent: read("parent"),
    tags: query.getAll("tag").map(pair),
    since: seconds(read("since")),
    until: seconds(read("until")),
    text: read("text").toLowerCase(),
    problems: problemsOf(query),
  };
}

const RUN_ID = /^[0-9a-f]{32}$/;
const END_OF_ID = /^(?:…|\.\.\.)\s*([0-9a-f]+)$/;

/**
 * What a person searches for: a run by its id, or by the end of it, copied as the console shows it (`…4a022983`), if that
 * is the end of one known id; else the runs that contain a text.
 * @param {string} written
 * @param {ReadonlyMap<string, RunRecord>} runs
 * @returns {{ run?: string, text: string }}
 */
export function sought(written, runs) {
  const text = written.trim();
  if (RUN_ID.test(text) || runs.has(text)) return { run: text, text };
  const end = END_OF_ID.exec(text)?.[1];
  if (end === undefined) return { text };
  const [run, other] = [...runs.keys()].filter((id) => id.endsWith(end));
  return { run: other === undefined ? run : undefined, text: end };
}

/** @param {URLSearchParams} query */
function problemsOf(query) {
  const names = [...query.keys()].filter((name) => !NAMES.includes(name));
  const statuses = query.getAll("status").filter((one) => !STATUSES.includes(one));
  const tags = query.getAll("tag").filter((one) => one.indexOf("=") < 1);
  const times = ["since", "until"].filter((name) => query.get(name) && seconds(query.get(name) ?? "") === null);
  return [
    ...names.map((name) => `${name} is not a filter`),
    ...statuses.map((one) => `${one} is not a status`),
    ...tags.map((one) => `${one} is not a tag with its value: write tag=name=value, such as tag=user=alice`),
    ...times.map((name) => `${name} is not a time: ${query.get(name)}`),
  ];
}

/** @param {string} text @returns {[string, string]} */
function pair(text) {
  const at = text.indexOf("=");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** The largest time of a `Date` in milliseconds, without a day for the time zone. */
const LATEST = 8.64e15 - 86_400_000;

/** A time in Unix seconds or as ISO 8601; one without a zone is local. Null if it is no time. @param {string} text */
export function seconds(text) {
  const at = /^-?\d+(\.\d+)?$/.test(text) ? Number(text) * 1000 : Date.parse(text);
  return Math.abs(at) <= LATEST ? at / 1000 : null;
}

/** A time for an address: the same for readers in all time zones. @param {number} at Unix seconds */
export const written = (at) => new Date(at * 1000).toISOString().replace(/(:00)?\.000Z$/, "Z");

/** A time as in the field of a form, which is local. @param {number} at Unix seconds */
export function local(at) {
  const date = new Date(at * 1000);
  return written(at - date.getTimezoneOffset() * 60).slice(0, -1);
}

/** @param {RunFilter} filter @returns {(run: RunRecord) => boolean} */
export function matcher(filter) {
  const { status, tags, since, until, text, flow } = filter;
  if (filter.problems.length > 0) return () => false;
  const equal = EQUAL.filter((name) => filter[name]);
  return (run) =>
    (status.size === 0 || status.has(run.status)) &&
    equal.every((name) => run[name] === filter[name]) &&
    (!flow || flowOf(run) === flow) &&
    tags.every(([name, value]) => run.tags[name] === value) &&
    (since === null || run.created_at >= since) &&
    (until === null || run.created_at < until) &&
    (!text || contains(run, text));
}

/** The name of the flow that a run walks, or null. @param {RunRecord} run @returns {string | null} */
export function flowOf(run) {
  const params = /** @type {any} */ (run.params);
  return run.job === "flow" && typeof params?.flow === "string" ? params.flow : null;
}

/** What a run executes, where there is one text for it: `flow order`, or the name of its job. @param {RunRecord} run */
export function workOf(run) {
  const flow = flowOf(run);
  return flow === null ? run.job : `flow ${flow}`;
}

/** @param {RunRecord} run @param {string} text in lower case */
function contains(run, text) {
  for (const name of /** @type {const} */ (["id", "job", "handle", "lane", "key", "reason", "error"])) {
    if (run[name]?.toLowerCase().includes(text)) return true;
  }
  if (Object.entries(run.tags).some(([name, value]) => `${name}=${value}`.toLowerCase().includes(text))) return true;
  return run.params !== null && writeExact(run.params).toLowerCase().includes(text);
}

/**
 * The options of `listRuns` for the ended runs of this filter; null if it has none. Only the caller knows `text`.
 * @param {RunFilter} filter
 */
export const endedOptions = (filter) => optionsOf(filter, ENDED);

/**
 * The same for the runs with one of these statuses.
 * @param {RunFilter} filter
 * @param {string[]} statuses
 */
export function optionsOf(filter, statuses) {
  const wanted = statuses.filter((status) => filter.status.size === 0 || filter.status.has(status));
  if (wanted.length === 0 || filter.problems.length > 0) return null;
  const { job, flow, handle, lane, parent, since, until } = filter;
  const tags = Object.fromEntries(filter.tags);
  if (filter.tags.some(([name, value]) => tags[name] !== value)) return null; // a run has one value for a name
  return {
    status: /** @type {RunStatus[]} */ (wanted),
    ...(job && { job }),
    ...(flow && { flow }),
    ...(handle && { handle }),
    ...(lane && { lane }),
    ...(parent && { parent }),
    ...(since !== null && { since }),
    ...(until !== null && { until }),
    ...(filter.tags.length > 0 && { tags }),
  };
}

/** Whether an action makes sense for a run. @param {RunRecord} run */
export const canCancel = (run) => CANCELLABLE.includes(run.status);
export const canRerun = hasEnded;
/** @param {RunRecord} run */
export const canRetry = (run) => FAILED.includes(run.status);
