/** One handle: its status, its active run and who waits, its draft, and the history of its runs. */

import { html, useEffect, useMemo, useSignal } from "../../../vendor/ui.js";
import { Elapsed, Moment, Nothing, Progress, RunLink, Status } from "../../parts/basic.js";
import { ask } from "../../parts/dialog.js";
import { Text } from "../../parts/text.js";
import { to } from "../../state/address.js";
import { client, live, may } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";
import { Actions } from "../run/actions.js";
import { Interrupts } from "../run/interrupts.js";
import { filterOf, matcher } from "../runs/filter.js";
import { Rows } from "../runs/rows.js";
import { Draft } from "./draft.js";
import { HandleStatus } from "./status.js";

/** @typedef {import("../../../greenroom.js").HandleState} HandleState */
/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

const PAGE = 25;
const SHOWN_WAITING = 50;

/** What a handle is of which the state has nothing. @type {HandleState} */
const UNKNOWN = { status: "Idle", locked: false, active_run: null, waiting: [], params: null };

/** @param {{ names: string[] }} props */
export function Handle({ names: [name] }) {
  const past = useMemo(() => new Past(name), [name]);
  const changes = useSignal(0);
  useEffect(() => {
    past.more().then(() => (changes.value += 1));
    return live.onFrame((frame) => past.take(frame));
  }, [past]);
  changes.value;
  live.frame.value; // renders again after each change

  const handle = live.handle(name) ?? UNKNOWN;
  const active = handle.active_run ? live.runs.get(handle.active_run) : undefined;
  const open = live.interrupts.value.filter(([, { run }]) => live.runs.get(run)?.handle === name);
  const waiting = handle.waiting.slice(0, SHOWN_WAITING);
  return html`<article>
    <div class="title">
      <h1><${Text} value=${name} /></h1>
      <${HandleStatus} handle=${handle} />
      <span class="spread"></span>
      <${Controls} name=${name} handle=${handle} active=${active} />
    </div>
    ${open.length > 0 && html`<section aria-label="Interrupts"><${Interrupts} list=${open} linked /></section>`}
    <div class="columns">
      <div>
        <section class="card active-run" aria-labelledby="active-title">
          <h2 id="active-title">Active run</h2>
          ${active
            ? html`<p><${RunLink} id=${active.id} short /> <${Text} value=${active.job} /> <${Status} status=${active.status} />${" "}
                  <${Elapsed} from=${active.started_at ?? active.created_at} /></p>
                <p><${Progress} run=${active} /></p>
                <${Actions} run=${active} />`
            : html`<${Nothing}>None. The handle is free.<//>`}
        </section>
        <section class="card" aria-labelledby="waiting-title">
          <h2 id="waiting-title">Waiting <span class="faint number">${handle.waiting.length || ""}</span></h2>
          ${handle.waiting.length === 0 && html`<${Nothing}>No run waits for the handle.<//>`}
          <ol class="waiting">
            ${waiting.map((id) => html`<li key=${id}><${RunLink} id=${id} short /> <${Text} value=${live.runs.get(id)?.job ?? ""} /></li>`)}
          </ol>
          ${handle.waiting.length > SHOWN_WAITING && html`<p class="faint">and ${handle.waiting.length - SHOWN_WAITING} more</p>`}
        </section>
      </div>
      <${Draft} name=${name} handle=${handle} lastJob=${past.lastJob} />
    </div>
    <section class="card" aria-labelledby="history-title">
      <h2 id="history-title">Runs</h2>
      <${History} past=${past} more=${() => past.more().then(() => (changes.value += 1))} />
      <p><a href=${to("runs", [], { handle: name })}>All runs of this handle</a></p>
    </section>
  </article>`;
}

/** @param {{ name: string, handle: HandleState, active: RunRecord | undefined }} props */
function Controls({ name, handle, active }) {
  if (!may("operator")) return null;
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

/** @param {{ past: Past, more: () => void }} props */
function History({ past, more }) {
  const runs = past.shown();
  if (runs.length === 0) return html`<${Nothing}>There are no runs yet.<//>`;
  return html`<div class="scroll" tabindex="0" role="group" aria-labelledby="history-title">
      <table>
        <thead><tr>${["Run", "Job", "Kind", "Status", "Created", "Time", "Reason or error"].map((one) => html`<th key=${one} scope="col">${one}</th>`)}</tr></thead>
        <tbody>
          ${runs.map(
            (run) => html`<tr key=${run.id}>
              <td><${RunLink} id=${run.id} short /></td>
              <td><${Text} value=${run.job} /></td>
              <td><${Text} value=${run.kind} /></td>
              <td><${Status} status=${run.status} /></td>
              <td><${Moment} at=${run.created_at} /></td>
              <td><${Elapsed} from=${run.started_at} to=${run.ended_at} /></td>
              <td class="why"><${Text} value=${run.error ?? run.reason ?? run.waiting_for ?? ""} /></td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${past.hasMore && html`<button class="quiet" onClick=${more}>Older runs</button>`}`;
}

/** The runs of a handle, newest first: those of the state, and older ones from the store, page by page. */
class Past {
  #name;
  #rows;
  #size = 0;
  #over = false;

  /** @param {string} name */
  constructor(name) {
    this.#name = name;
    this.#rows = new Rows(matcher(filterOf(new URLSearchParams({ handle: name }))));
    this.#rows.rebuild(live.runs);
  }

  get hasMore() {
    return !this.#over || this.#rows.count > this.#size;
  }

  /** The job of the newest run, or no text. */
  get lastJob() {
    return this.shown()[0]?.job ?? "";
  }

  shown() {
    const size = Math.min(this.#size || PAGE, this.#rows.count);
    return Array.from({ length: size }, (_, index) => this.#rows.record(this.#rows.at(index), live.runs)).filter((run) => run !== undefined);
  }

  /** @param {import("../../state/live.js").Frame} frame */
  take({ reset, runs }) {
    if (reset) this.#rows.rebuild(live.runs);
    else this.#rows.update(runs, live.runs);
  }

  /** Show another page. */
  async more() {
    const oldest = this.#size > 0 ? this.shown().at(-1)?.id : undefined;
    const found = await attempt(() => client().listRuns({ handle: this.#name, limit: PAGE, ...(oldest && { before: oldest }) }));
    if (!found) return;
    this.#over = found.length < PAGE;
    this.#rows.add(found.filter(({ id }) => !live.runs.has(id)));
    this.#size += PAGE;
  }
}
