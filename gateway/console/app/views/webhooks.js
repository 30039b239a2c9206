/** Dead webhooks, to which an event could not be delivered for a day: deliver again, or drop. */

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
  const limit = useSignal(PAGE);
  const { value: dead, error, again } = useReading(() => client().webhooks.dead({ limit: limit.value }), ["webhook_changed"]);
  const more = () => {
    limit.value = MOST;
    again();
  };
  const full = dead !== null && dead.length === limit.value;
  return html`<section aria-labelledby="webhooks-title">
    <div class="title">
      <h1 id="webhooks-title">Dead webhooks</h1>
      ${dead && html`<span class="faint number">${dead.length.toLocaleString()}${full ? " or more" : ""}</span>`}
    </div>
    ${error && html`<p class="error-text" role="alert"><${Text} value=${error.message} /></p>`}
    ${dead?.length === 0 && html`<${Nothing}>All events are delivered, or their delivery is still being retried.<//>`}
    <ul class="grid">${dead?.map((webhook) => html`<${Entry} key=${webhook.id} webhook=${webhook} />`)}</ul>
    ${full && limit.value < MOST && html`<button onClick=${more}>Show up to ${MOST.toLocaleString()}</button>`}
    ${full && limit.value === MOST && html`<p class="faint">These are the first ${MOST.toLocaleString()}.</p>`}
  </section>`;
}

/** @param {{ webhook: Webhook }} props */
function Entry({ webhook: { id, run, url, types, attempts, failing_since, error, dead_at } }) {
  return html`<li class="card failed-card">
    <p class="card-head"><strong><${Text} value=${url} mono /></strong></p>
    <dl class="about">
      <div><dt>run</dt><dd><${RunLink} id=${run} /></dd></div>
      <div><dt>events</dt><dd>${types.map((type) => html`<span key=${type} class="tag"><${Text} value=${type} /></span>`)}</dd></div>
      <div><dt>failed</dt><dd>${attempts ?? 0} times since <${Moment} at=${failing_since ?? null} />; dead since <${Moment} at=${dead_at ?? null} /></dd></div>
      <div><dt>last error</dt><dd class="error-text"><${Text} value=${error ?? ""} lines /></dd></div>
    </dl>
    ${may("operator") &&
    html`<div class="actions">
      <button class="primary" onClick=${() => attempt(() => client().webhooks.redeliver(id), "the events are delivered again")}>Deliver again</button>
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
