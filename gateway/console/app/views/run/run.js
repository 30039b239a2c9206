/** One run: where it stands, what happened to it, what it was given and what it gave. */

import { html, useEffect, useMemo } from "../../../vendor/ui.js";
import { Elapsed, FilterLink, HandleLink, Moment, Nothing, Progress, RunLink, Status, Tags } from "../../parts/basic.js";
import { Json } from "../../parts/json.js";
import { later } from "../../parts/later.js";
import { LongText, Text } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { live } from "../../state/session.js";
import { useSubject } from "../../state/title.js";
import { flowOf } from "../runs/filter.js";
import { PastRuns, usePast } from "../runs/past.js";
import { Actions, Message } from "./actions.js";
import { AllEvents, Earlier } from "./events.js";
import { Files } from "./files.js";
import { useHeld } from "./held.js";
import { Asked } from "./interrupts.js";
import { Log } from "./log.js";
import { Messages, isSent } from "./messages.js";
import { useRecord } from "./record.js";
import { Story } from "./story.js";
import { Timeline } from "./timeline.js";
import { Waits } from "./waits.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const Walk = later((suffix) => import(`../flows/walk.js${suffix}`), "Walk");

/** @param {{ names: string[] }} props */
export function Run({ names: [id] }) {
  const story = useMemo(() => new Story(id), [id]);
  useEffect(() => {
    story.open();
    return () => story.close();
  }, [story]);
  const past = usePast({ parent: id });
  live.frame.value; // renders again after each change
  const { run, problem } = useRecord(id);
  const asked = useHeld(live.interrupts.value.filter(([, interrupt]) => interrupt.run === id), { appends: true });
  useSubject(run ? `${flowOf(run) ?? run.job} · ${run.handle} · ${run.status.replace("_", " ")}` : "");
  useEffect(() => {
    if (run && run.id !== id) go(to("runs", [run.id]), { replace: true }); // the address names the handle
  }, [run?.id]);
  if (!run) {
    return html`<h1>Run</h1>
      ${problem ? html`<p class="error-text" role="alert"><${Text} value=${problem} /></p>` : html`<${Nothing}>Loading…<//>`}`;
  }

  const events = story.events.value;
  const children = past.shown();
  return html`<article class="run">
    <div class="title">
      <h1><${Text} value=${flowOf(run) ?? run.job} /> <small class="faint">of</small> <${HandleLink} name=${run.handle} /></h1>
      <${Status} status=${run.status} />
      <span class="spread"></span>
      <${Actions} run=${run} />
    </div>
    ${problem && html`<p class="error-text" role="alert">This can be out of date: <${Text} value=${problem} /></p>`}
    <${Asked} asked=${asked} />
    <${Waits} run=${run} events=${events} />
    ${run.error && html`<section class="card failed-card"><h2>Error</h2><${LongText} value=${run.error} mono /></section>`}
    ${run.progress && html`<section class="card"><h2>Progress</h2><${Progress} run=${run} /><${Stats} progress=${run.progress} /></section>`}
    <div class="columns">
      <section class="card"><h2>About</h2><${About} run=${run} by=${story.first.value[0]?.by ?? ""} /></section>
      <section class="card">
        <h2>Time line</h2>
        <${Earlier} story=${story} />
        <${Timeline} run=${run} events=${events} first=${story.first.value} called=${children} />
        ${story.problem.value && html`<p class="error-text"><${Text} value=${story.problem.value} /></p>`}
      </section>
    </div>
    ${children.length > 0 &&
    html`<section class="card" aria-labelledby="children-title">
      <h2 id="children-title">Children</h2>
      <${PastRuns} past=${past} column="Handle" label="children-title" />
      <p><a href=${to("runs", [], { parent: id })}>All children of this run</a></p>
    </section>`}
    ${run.job === "flow" && html`<${Walk} run=${run} events=${events} />`}
    <div class="columns">
      <section class="card"><h2>Parameters</h2><${Json} value=${run.params} name="the parameters" /></section>
      ${run.status === "succeeded" && html`<section class="card"><h2>Result</h2><${Json} value=${run.result} name="the result" /></section>`}
    </div>
    <${Files} key=${id} id=${id} />
    <section class="card"><h2>Log</h2><${Earlier} story=${story} /><${Log} id=${id} events=${events} /></section>
    ${(run.interactive || events.some(isSent)) &&
    html`<section class="card">
      <h2>Messages</h2>
      <${Message} run=${run} />
      <${Messages} events=${events} />
    </section>`}
    <${AllEvents} story=${story} />
  </article>`;
}

/** What a body reported besides `done` and `total`. @param {{ progress: Record<string, unknown> }} props */
function Stats({ progress }) {
  const { done, total, ...others } = progress;
  return Object.keys(others).length > 0 ? html`<${Json} value=${others} name="the progress" />` : null;
}

/** What is true of a body only for a while. */
const FLAGS = {
  detached: "executes without a slot",
  interactive: "takes messages",
  streaming: "streams an answer",
  compacting: "compacts its context",
};

/** `by`: who submitted it; empty while that is not read. @param {{ run: RunRecord, by: string }} props */
function About({ run, by }) {
  const flow = flowOf(run);
  const flags = Object.entries(FLAGS).filter(([name]) => /** @type {any} */ (run)[name]);
  /** @type {[string, any][]} */
  const lines = [
    ["Run", html`<${RunLink} id=${run.id} />`],
    ["Job", flow === null ? html`<${Text} value=${run.job} />` : html`flow <a href=${to("flows", [flow])}><${Text} value=${flow} /></a>`],
    ["Submitted by", by && html`<${Text} value=${by} />`],
    ["Handle", html`<${HandleLink} name=${run.handle} />`],
    ["Lane", html`<${FilterLink} query=${{ lane: run.lane }} value=${run.lane} />`],
    ["Parent", run.parent && html`<${RunLink} id=${run.parent} />`],
    ["Kind", html`<${Text} value=${run.kind} />`],
    ["Reason", run.reason && html`<${Text} value=${run.reason} />`],
    ["Waits for", run.waiting_for && html`<${Text} value=${run.waiting_for} />`],
    ["Attempt", run.attempt],
    ["Priority", run.priority || null],
    ["Key", run.key && html`<${Text} value=${run.key} />`],
    ["Needs", run.needs.length > 0 && html`<${Text} value=${run.needs.join(", ")} />`],
    ["Tags", Object.keys(run.tags).length > 0 && html`<${Tags} tags=${run.tags} />`],
    ["Executor", run.executor && html`<${Text} value=${run.executor} mono />`],
    ["Now", flags.map(([, words]) => words).join(", ")],
    ["Not before", run.not_before !== null && html`<${Moment} at=${run.not_before} />`],
    ["Created", html`<${Moment} at=${run.created_at} />`],
    ["Started", run.started_at !== null && html`<${Moment} at=${run.started_at} />`],
    ["Ended", run.ended_at !== null && html`<${Moment} at=${run.ended_at} />`],
    ["Time", run.started_at !== null && html`<${Elapsed} from=${run.started_at} to=${run.ended_at} />`],
  ];
  const shown = lines.filter(([, value]) => value !== null && value !== false && value !== "");
  return html`<dl class="about">${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
