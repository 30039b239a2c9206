/** One handle: its status, its active run and who waits, its draft, and the history of its runs. */

import { html } from "../../../vendor/ui.js";
import { Elapsed, Nothing, Progress, RunLink, Status } from "../../parts/basic.js";
import { ask } from "../../parts/dialog.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { client, limits, limitsInWords, live, may, seesHandle } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { Actions } from "../run/actions.js";
import { useHeld } from "../run/held.js";
import { Asked } from "../run/interrupts.js";
import { workOf } from "../runs/filter.js";
import { PastRuns, usePast } from "../runs/past.js";
import { Draft } from "./draft.js";
import { HandleStatus, UNKNOWN, withOutcome } from "./status.js";

/** @typedef {import("../../../greenroom.js").HandleState} HandleState */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const SHOWN_WAITING = 50;

/** @param {string} id of a run */
function workOfId(id) {
  const run = live.runs.get(id);
  return run ? workOf(run) : "";
}

/** @param {{ names: string[] }} props */
export function Handle({ names: [name] }) {
  if (seesHandle(name)) return html`<${Seen} name=${name} />`;
  return html`<div class="title"><h1><${Text} value=${name} /></h1></div>
    <p>Your token may not see this handle: it is limited to <${Text} value=${limitsInWords()} />.</p>`;
}

/** @param {{ name: string }} props */
function Seen({ name }) {
  const past = usePast({ handle: name });
  live.frame.value; // renders again after each change

  const handle = live.handle(name) ?? UNKNOWN;
  const active = handle.active_run ? live.runs.get(handle.active_run) : undefined;
  const asked = useHeld(live.interrupts.value.filter(([, { run }]) => live.runs.get(run)?.handle === name), { appends: true });
  const waiting = handle.waiting.slice(0, SHOWN_WAITING);
  return html`<article>
    <div class="title">
      <h1><${Text} value=${name} /></h1>
      <${HandleStatus} handle=${withOutcome(handle, past.shown())} />
      ${handle.status === "Idle" && !past.isRead && html`<small class="faint">last outcome not loaded</small>`}
      <span class="spread"></span>
      <${Controls} name=${name} handle=${handle} active=${active} />
    </div>
    <${Asked} asked=${asked} linked />
    <div class="columns">
      <div>
        <section class="card active-run" aria-labelledby="active-title">
          <h2 id="active-title">Active run</h2>
          ${active
            ? html`<p><${RunLink} id=${active.id} short /> <${Text} value=${workOf(active)} /> <${Status} status=${active.status} />${" "}
                  <${Elapsed} from=${active.started_at ?? active.created_at} /></p>
                <p><${Progress} run=${active} /></p>
                <${Actions} run=${active} />`
            : html`<${Nothing}>${whole() ? "None. The handle is free." : "None that your token may see."}<//>`}
        </section>
        <section class="card" aria-labelledby="waiting-title">
          <h2 id="waiting-title">Waiting <span class="faint number">${handle.waiting.length || ""}</span></h2>
          ${handle.waiting.length === 0 &&
          html`<${Nothing}>${whole() ? "No run waits for the handle." : "No run that your token may see waits for the handle."}<//>`}
          <ol class="waiting">
            ${waiting.map((id) => html`<li key=${id}><${RunLink} id=${id} short /> <${Text} value=${workOfId(id)} /></li>`)}
          </ol>
          ${handle.waiting.length > SHOWN_WAITING && html`<p class="faint">and ${handle.waiting.length - SHOWN_WAITING} more</p>`}
        </section>
      </div>
      <${Draft} name=${name} handle=${handle} last=${past.shown()[0]} />
    </div>
    <section class="card" aria-labelledby="history-title">
      <h2 id="history-title">Runs</h2>
      <${PastRuns} past=${past} column="Kind" label="history-title" />
      <p><a href=${to("runs", [], { handle: name })}>All runs of this handle</a></p>
    </section>
  </article>`;
}

/** Whether the token may see all runs of a handle that it may see. */
const whole = () => !limits.value?.lanes && !limits.value?.jobs;

/** @param {{ name: string, handle: HandleState, active: RunRecord | undefined }} props */
function Controls({ name, handle, active }) {
  if (!may("operator") || !whole()) return null;
  const clear = async () => {
    const answer = await ask({
      title: "Cancel the runs that wait?",
      body: "All runs that wait for this handle are cancelled. Its active run continues.",
      choices: [{ name: "clear", label: "Cancel those that wait", danger: true }],
    });
    if (answer) await attempt(() => client().clearHandle(name), (count) => `${count} ${count === 1 ? "run" : "runs"} cancelled`);
  };
  const release = async () => {
    const answer = await ask({
      title: "Release this handle?",
      body: "A body that ignored its cancellation still executes. After a release, the next run of the handle executes beside it.",
      choices: [{ name: "release", label: "Release", danger: true }],
    });
    if (answer) await attempt(() => client().releaseHandle(name), (freed) => (freed ? "released" : "the handle was free"));
  };
  return html`<div class="actions">
    ${handle.waiting.length > 0 && html`<button class="danger" onClick=${clear}>Clear ${handle.waiting.length} waiting</button>`}
    ${active?.reason === "abandoned" && html`<button class="danger" onClick=${release}>Release</button>`}
  </div>`;
}
