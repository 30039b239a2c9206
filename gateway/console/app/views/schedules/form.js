/** The form that creates a schedule or changes one. Options that it does not show stay as they are. */

import { parseExact, writeExact } from "../../../greenroom.js";
import { html, useSignal } from "../../../vendor/ui.js";
import { Choice } from "../../parts/choice.js";
import { Field } from "../../parts/field.js";
import { InvisibleLetters, Text } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { client, limits, live } from "../../state/session.js";
import { attempt, report } from "../../state/toasts.js";
import { BUSY } from "../handles/busy.js";
import { Preview } from "./preview.js";
import { tagsIn, written as writtenTags } from "./tags.js";

const ON_CONFLICT = { ...BUSY, coalesce: "give a run that waits the new parameters, else wait" };
const MISSED = { latest: "only the latest fires", skip: "none fires", all: "all fire" };
const ZONES = Intl.supportedValuesOf("timeZone");

/** @typedef {import("../../../greenroom.js").ScheduleRecord} ScheduleRecord */
/** @typedef {import("./preview.js").Times} Times */

/** @param {{ schedule?: ScheduleRecord }} props */
export function Form({ schedule }) {
  const problem = useSignal("");
  const { on_conflict: onConflict = "reject", lane, tags, ...others } = /** @type {Record<string, any>} */ (schedule?.options ?? {});
  const kind = useSignal(schedule && schedule.cron === null ? "every" : "cron");
  const times = useSignal(/** @type {Times | null} */ (null));
  /** @param {any} event */
  const note = (event) => (times.value = timesIn(new FormData(event.currentTarget)));
  /** @param {any} event */
  const submit = async (event) => {
    event.preventDefault();
    problem.value = "";
    const given = new FormData(event.currentTarget);
    const text = (/** @type {string} */ name) => String(given.get(name) ?? "").trim();
    let chosenTags;
    try {
      chosenTags = tagsIn(String(given.get("tags") ?? ""), tags);
    } catch (error) {
      problem.value = /** @type {Error} */ (error).message;
      return;
    }
    let params;
    try {
      params = text("params") ? parseExact(text("params")) : undefined;
    } catch (error) {
      problem.value = `the parameters are not valid JSON: ${/** @type {Error} */ (error).message}`;
      return;
    }
    const name = schedule?.name ?? text("name");
    if (!schedule && (await exists(name))) {
      problem.value = `schedule ${name} exists already: open it to change it`;
      return;
    }
    const options = {
      ...others,
      ...timesIn(given),
      onConflict: /** @type {import("../../../greenroom.js").OnConflict} */ (text("on_conflict")),
      lane: text("lane") || null,
      tags: chosenTags,
      params,
      job: text("job"),
      handle: text("handle") || null,
      jitter: Number(text("jitter")),
      missed: /** @type {"latest"} */ (text("missed")),
      missedLimit: Number(text("missed_limit")),
      ...(!schedule && { paused: given.has("paused") }),
    };
    const put = await attempt(() => client().schedules.put(name, options), "the schedule is saved");
    if (put) go(to("schedules", [put.name]));
  };
  return html`<form class="form" aria-label=${schedule ? "Change the schedule" : "New schedule"} onSubmit=${submit} onInput=${note}>
    ${!schedule && html`<${Field} name="name" label="Name" required />`}
    <${Field} name="job" label="Job" value=${schedule?.job} required />
    <${Field} name="handle" label="Handle of the runs" value=${schedule?.handle} placeholder="schedule:<name>" />
    <${Choice} name="on_conflict" label="If the handle is busy" value=${onConflict} options=${ON_CONFLICT} />
    <${Field} name="lane" label="Lane; empty: that of the job" value=${lane} list="lanes" />
    <datalist id="lanes">${Object.keys(live.counts.peek()?.lanes ?? {}).map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    <label><span>Times</span>
      <select name="kind" value=${kind.value} onChange=${(/** @type {any} */ event) => (kind.value = event.currentTarget.value)}>
        <option value="cron">a cron expression</option>
        <option value="every">an interval</option>
      </select>
    </label>
    ${kind.value === "cron"
      ? html`<${Field} name="cron" label="Cron expression" value=${schedule?.cron} placeholder="0 3 * * *" required />
          <${Field} name="timezone" label="Time zone" value=${schedule?.timezone ?? "UTC"} list="zones" />
          <datalist id="zones">${ZONES.map((zone) => html`<option key=${zone} value=${zone} />`)}</datalist>`
      : html`<${Field} name="every" label="Interval in seconds" type="number" value=${schedule?.every ?? 3600} required />`}
    ${times.value && html`<${Preview} times=${times.value} />`}
    <${Field} name="jitter" label="Late by up to, in seconds" type="number" value=${schedule?.jitter ?? 0} />
    <${Choice} name="missed" label="Due times that were missed" value=${schedule?.missed ?? "latest"} options=${MISSED} />
    <${Field} name="missed_limit" label="At most, if all fire" type="number" value=${schedule?.missed_limit ?? 100} />
    <label class="wide"><span>Tags, one name=value per line</span>
      <textarea name="tags" rows="2" spellcheck=${false} defaultValue=${writtenTags(tags ?? {})}></textarea>
      <${InvisibleLetters} value=${writtenTags(tags ?? {})} />
    </label>
    <label class="wide"><span>Parameters, as JSON; empty: the draft of the handle</span>
      <textarea name="params" rows="4" spellcheck=${false} defaultValue=${written(schedule?.params)}></textarea>
      <${InvisibleLetters} value=${written(schedule?.params)} />
    </label>
    ${!schedule && html`<label class="check wide"><input type="checkbox" name="paused" /> Create it paused</label>`}
    ${problem.value && html`<p class="error-text wide" role="alert"><${Text} value=${problem.value} /></p>`}
    <div class="wide"><button class="primary">${schedule ? "Save" : "Create"}</button></div>
  </form>`;
}

/** Whether there is a schedule of this name. A token with limits receives no events of schedules. @param {string} name */
async function exists(name) {
  if (limits.peek() === null) return live.schedules.peek().some(([known]) => known === name);
  const found = await report(() => client().schedules.list());
  return (found ?? []).some((known) => known.name === name);
}

/**
 * The due times in the form; null if there are none yet.
 * @param {FormData} given @returns {Times | null}
 */
function timesIn(given) {
  const text = (/** @type {string} */ name) => String(given.get(name) ?? "").trim();
  if (text("kind") === "every") return text("every") ? { every: Number(text("every")) } : null;
  return text("cron") ? { cron: text("cron"), timezone: text("timezone") || "UTC" } : null;
}

/** Parameters as JSON; without any, the field is empty. @param {unknown} params */
const written = (params) => (params === undefined || params === null ? "" : writeExact(params, 2));
