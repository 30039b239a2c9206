/** What a suspended run waits for: an answer, a time, a child …, or again for a slot of its lane. */

import { html } from "../../../vendor/ui.js";
import { Status } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { live } from "../../state/session.js";
import { reasonsOf } from "../overview/queues.js";
import { NamedRun } from "../runs/name.js";
import { NextAttempt } from "./retry.js";
import { ForSlot } from "./slot.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */
/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */

const SHOWN = 10;

/** Why a run has to wait for a slot again, by what it waited for, or by its reason. @type {Record<string, string>} */
const BEFORE = {
  answer: "It waited for an answer, and its question is closed.",
  child: "It waited for a child run, which has ended.",
  message: "It waited for a message, which has arrived.",
  time: "It waited for a time, which has come.",
  signal: "It waited for a signal, which has arrived.",
  retry: "Its last attempt failed. The next one begins when it has a slot.",
  recovered: `It executed when the process of the engine died. Such runs start one after the other, because one of them may have
    caused it: each starts when the one before it waits, has ended, or has executed for a while, usually 30 s.`,
  shutdown: "The engine was stopped while it executed.",
  lease_lost: "The engine lost its lease on the store while it executed.",
  executor_lost: "Its executor was lost.",
  executor_refused: "Its executor refused it.",
  body_lost: "Its executor no longer had its body.",
  not_begun: "Its executor cannot have received its body.",
};

/** @param {{ run: RunRecord, events: readonly GreenroomEvent[] }} props */
export function Suspended({ run, events }) {
  const since = events.findLastIndex((event) => event.type === "run_state_changed" && event.to === "suspended");
  const hasMessage = run.waiting_for === "message" && since >= 0 && events.slice(since).some(({ type }) => type === "run_message");
  if (hasMessage || live.survey.value.again.has(run.id)) {
    const before = BEFORE[run.waiting_for ?? ""] ?? BEFORE[run.reason ?? ""];
    return html`${before && html`<p>${before}</p>`}<${ForSlot} run=${run} />`;
  }
  const why = reasonsOf(run);
  return html`<${Awaited} run=${run} suspension=${events[since]} />
    ${why.length > 0 && html`<p>After that, it needs a slot of its lane again. Now: <${Text} value=${why.join("; ")} />.</p>`}`;
}

/** @param {{ run: RunRecord, suspension?: GreenroomEvent }} props */
function Awaited({ run, suspension }) {
  switch (run.waiting_for) {
    case "answer": {
      const open = live.interrupts.value.filter(([, interrupt]) => interrupt.run === run.id).length;
      return html`<p>It waits for ${open === 1 ? "an answer to its question" : `answers to its ${open} questions`} above.</p>`;
    }
    case "child":
      return html`<${ForChild} run=${run} />`;
    case "message":
      return html`<p>It waits for a message.</p>`;
    case "signal":
      return html`<p>It waits for a signal, which is named below.</p>`;
    case "time":
      return html`<p>It waits for a time that it has set itself.</p>`;
    case "retry":
      return html`<${NextAttempt} run=${run} suspension=${suspension} />`;
    default:
      return html`<p>It waits for <${Text} value=${run.waiting_for ?? "what the state does not tell"} />.</p>`;
  }
}

/** @param {{ run: RunRecord }} props */
function ForChild({ run }) {
  const children = [...live.runs.values()].filter(({ parent, ended_at }) => parent === run.id && ended_at === null);
  if (children.length === 0) return html`<p>It waits for a child run.</p>`;
  return html`<p>It waits for ${children.length === 1 ? "its child run" : "its child runs"}:</p>
    <ul>${children.slice(0, SHOWN).map((child) => html`<li key=${child.id}><${NamedRun} run=${child} /> <${Status} status=${child.status} /></li>`)}</ul>
    ${children.length > SHOWN && html`<p>and ${(children.length - SHOWN).toLocaleString()} more.</p>`}`;
}
