/**
 * Webhooks that fail: dead ones, to which an event could not be delivered for a day, and those whose delivery is being
 * retried. Both can be delivered now, or dropped.
 */

import { html, useSignal } from "../../vendor/ui.js";
import { Moment, Nothing, RunLink } from "../parts/basic.js";
import { confirmed } from "../parts/dialog.js";
import { Text } from "../parts/text.js";
import { useReading } from "../state/reading.js";
import { client, may } from "../state/session.js";
import { attempt } from "../state/toasts.js";

const PAGE = 100;
const MOST = 1000;

/** @typedef {import("../../greenroom.js").Webhook} Webhook */

export function Webhooks() {
  return html`<div class="title"><h1>Webhooks</h1></div>
    <${List} name="dead" title="Dead">All events are delivered, or their delivery is still being retried.<//>
    <${List} name="failing" title="Failing">No delivery is being retried.<//>`;
}

/**
 * No event tells that a delivery has failed or succeeded, so the list can be read again.
 * @param {{ name: "dead" | "failing", title: string, children?: any }} props
 */
function List({ name, title, children }) {
  const limit = useSignal(PAGE);
  const { value: found, error, at, again } = useReading(() => client().webhooks[name]({ limit: limit.value }), ["webhook_changed"]);
  const more = () => {
    limit.value = MOST;
    again();
  };
  const full = found !== null && found.length === limit.value;
  return html`<section aria-labelledby=${`${name}-title`}>
    <div class="title">
      <h2 id=${`${name}-title`}>${title}</h2>
      ${found && html`<span class="faint number">${found.length.toLocaleString()}${full ? " or more" : ""}</span>`}
      ${name === "failing" && html`<button onClick=${again}>Read again</button>`}
    </div>
    ${error && html`<p class="error-text" role="alert"><${Text} value=${error.message} /></p>`}
    ${found?.length === 0 && html`<${Nothing}>${children}<//>`}
    ${name === "failing" && found !== null && found.length > 0 && html`<p class="faint">As of <${Moment} at=${at} />.</p>`}
    <ul class="grid">${found?.map((webhook) => html`<${Entry} key=${webhook.id} webhook=${webhook} />`)}</ul>
    ${full && limit.value < MOST && html`<button onClick=${more}>Show up to ${MOST.toLocaleString()}</button>`}
    ${full && limit.value === MOST && html`<p class="faint">These are the first ${MOST.toLocaleString()}.</p>`}
  </section>`;
}

/** @param {{ webhook: Webhook }} props */
function Entry({ webhook: { id, run, url, types, attempts, failing_since, error, next_at, dead_at } }) {
  return html`<li class="card failed-card">
    <p class="card-head"><strong><${Text} value=${url} mono /></strong></p>
    <dl class="about">
      <div><dt>run</dt><dd><${RunLink} id=${run} /></dd></div>
      <div><dt>events</dt><dd>${types.map((type) => html`<span key=${type} class="tag"><${Text} value=${type} /></span>`)}</dd></div>
      <div><dt>failed</dt><dd>${attempts ?? 0} times since <${Moment} at=${failing_since ?? null} /></dd></div>
      ${dead_at && html`<div><dt>dead since</dt><dd><${Moment} at=${dead_at} /></dd></div>`}
      ${next_at && html`<div><dt>next attempt</dt><dd><${Moment} at=${next_at} /></dd></div>`}
      <div><dt>last error</dt><dd class="error-text"><${Text} value=${error ?? ""} lines /></dd></div>
    </dl>
    ${may("operator") &&
    html`<div class="actions">
      <button class="primary" onClick=${() => attempt(() => client().webhooks.redeliver(id), "the events are delivered now")}>Deliver now</button>
      <button class="danger" onClick=${() => drop(id, url)}>Drop</button>
    </div>`}
  </li>`;
}

/** @param {string} id @param {string} url */
async function drop(id, url) {
  const body = html`<p>The remaining events of the run are never delivered to <${Text} value=${url} mono />.</p>`;
  if (await confirmed({ title: "Drop the webhook?", body, label: "Drop" })) {
    await attempt(() => client().webhooks.drop(id), "the webhook is dropped");
  }
}
