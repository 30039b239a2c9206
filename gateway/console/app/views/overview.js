/** The overview: what is wrong first, then how much there is, how it moves, who waits, the lanes, and the machines. */

import { html, useRef, useSignal } from "../../vendor/ui.js";
import { Chart } from "../parts/chart.js";
import { News } from "../parts/news.js";
import { useHeld } from "./run/held.js";
import { Interrupts, newestFirst } from "./run/interrupts.js";
import { Lanes } from "./overview/lanes.js";
import { Machines } from "./overview/machines.js";
import { Problems, useProblems } from "./overview/problems.js";
import { Queues } from "./overview/queues.js";
import { to } from "../state/address.js";
import { moment, now, span } from "../state/clock.js";
import { useKept } from "../state/kept.js";
import { SECONDS } from "../state/rates.js";
import { useResting } from "../state/resting.js";
import { live } from "../state/session.js";
import { FAILED, written } from "./runs/filter.js";
import { useWorkers } from "./workers.js";

const SHOWN_INTERRUPTS = 3;

export function Overview() {
  const workers = useWorkers().value ?? [];
  const found = useProblems(workers);
  const lanes = useResting();
  const asked = useHeld(newestFirst(live.interrupts.value), { also: lanes.resting.value });
  const holds = asked.resting || lanes.resting.value; // what is above them must not move them
  const shows = useSignal(0);
  const problems = useKept(found.map((one) => [one.key, one]), holds, shows.value);
  const show = () => {
    asked.release();
    shows.value += 1;
  };
  const counts = live.counts.value;
  if (!counts) return null;
  const { engine, runs } = counts;
  const open = live.interrupts.value;
  const failures = live.rates.failures(now.value);
  const waiting = (runs.suspended ?? 0) + (runs.cancelling ?? 0);
  return html`<section aria-labelledby="overview-title">
    <div class="title">
      <h1 id="overview-title">Overview</h1>
      <${News} count=${problems.added.length} what="problem" show=${show} />
      <${News} count=${asked.added} what="interrupt" show=${show} />
    </div>
    <${Problems} shown=${problems.shown} />
    <div class="tiles">
      <${Tile} label="executing" value=${engine.executing} of=${engine.max_concurrent} tone="running" query=${{ status: "running" }} />
      <${Tile} label=${["queued", ...outsideLanes()].join(", ")} value=${engine.queued} tone="queued" query=${{ status: "queued" }} />
      <${Tile} label="waiting" value=${waiting} tone="suspended" query=${{ status: ["suspended", "cancelling"] }} />
      <${Tile}
        label=${failures.complete ? "failed in the last hour" : `failed since ${moment(failures.since)}`}
        value=${failures.count}
        tone="failed"
        query=${{ status: FAILED, since: written(Math.floor(failures.since / 60) * 60) }}
      />
      <${Tile} label="open interrupts" value=${open.length} tone="asks" view="interrupts" />
    </div>
    <${OpenInterrupts} asked=${asked} />
    <${Charts} holds=${holds} />
    <${Queues} holds=${holds} />
    <div ...${lanes.handlers}><${Lanes} counts=${counts} holds=${holds} /></div>
    <${Machines} workers=${workers} />
  </section>`;
}

/** Of the queued runs, those that are not in the queue of a lane yet. */
function outsideLanes() {
  const { delayed, inHandles } = live.survey.value;
  return [delayed > 0 && `${delayed.toLocaleString()} delayed`, inHandles > 0 && `${inHandles.toLocaleString()} for ${inHandles === 1 ? "its handle" : "their handles"}`].filter(Boolean);
}

/** @param {{ asked: ReturnType<typeof useHeld> }} props */
function OpenInterrupts({ asked: { list, closed, handlers } }) {
  if (list.length === 0) return null;
  return html`<section aria-labelledby="interrupts-title">
    <h2 id="interrupts-title">Open interrupts</h2>
    <div ...${handlers}><${Interrupts} list=${list.slice(0, SHOWN_INTERRUPTS)} closed=${closed} linked compact /></div>
    ${list.length > SHOWN_INTERRUPTS && html`<p><a href=${to("interrupts")}>All ${live.interrupts.value.length.toLocaleString()} open interrupts</a></p>`}
  </section>`;
}

/** @param {{ label: string, value: number, of?: number, tone: string, view?: string, query?: Record<string, string | string[]> }} props */
function Tile({ label, value, of, tone, view = "runs", query = {} }) {
  return html`<a class="tile ${tone} ${value > 0 ? "some" : ""}" href=${to(view, [], query)}>
    <strong class="number">${value.toLocaleString()}</strong>${of !== undefined && html`<small class="number"> of ${of.toLocaleString()}</small>`}
    <span>${label}</span>
  </a>`;
}

/** `holds`: whether the note below the charts stays as it is, because a person is near. @param {{ holds: boolean }} props */
function Charts({ holds }) {
  live.frame.value;
  const series = live.rates.series(now.value);
  const noted = useRef(/** @type {number | null} */ (null));
  if (!holds) noted.current = live.rates.unknownUntil(now.value);
  const unknown = noted.current;
  const first = Math.min(...[...live.survey.value.waits.values()].map(({ since }) => since)); // the run that waits longest
  const waits = series.map(({ waited }, index) => Math.max(waited, now.value - (series.length - 1 - index) - first));
  const perSecond = (/** @type {number} */ value) => `${value}/s`;
  return html`<div class="charts" role="group" aria-label="The last two minutes">
    <${Chart} label="started" values=${series.map(({ started }) => started)} width=${SECONDS} format=${perSecond} tone="running" />
    <${Chart} label="ended" values=${series.map(({ ended }) => ended)} width=${SECONDS} format=${perSecond} tone="succeeded" />
    <${Chart} label="failed" values=${series.map(({ failed }) => failed)} width=${SECONDS} format=${perSecond} tone="failed" />
    <${Chart} label="longest wait" values=${waits} width=${SECONDS} latest=${Math.max(0, now.value - first)} format=${span} tone="queued" />
    ${unknown !== null && html`<p class="faint">These are known since ${moment(unknown)}: a page that opens gets only the runs that ended last.</p>`}
  </div>`;
}
