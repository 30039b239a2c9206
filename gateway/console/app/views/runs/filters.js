/** The form of the list's filter. Every change is in the address at once. */

import { html } from "../../../vendor/ui.js";
import { FilterForm } from "../../parts/filterform.js";
import { Icon } from "../../parts/icon.js";
import { Menu } from "../../parts/menu.js";
import { InvisibleLetters, visible } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { now } from "../../state/clock.js";
import { COLUMNS, chosen, toggle } from "./columns.js";
import { ENDED, FAILED, PENDING, STATUSES, local, seconds, written } from "./filter.js";

const TEXTS = ["job", "flow", "handle", "lane"];
const GROUPS = { "all pending": PENDING, "all ended": ENDED, "all failures": FAILED };

/** Times at which the runs of interest begin, in Unix seconds. @type {Record<string, () => number>} */
const QUICK = {
  "last hour": () => Math.floor(now.peek() / 60) * 60 - 3600,
  today: () => new Date(now.peek() * 1000).setHours(0, 0, 0, 0) / 1000,
};

/** @param {{ query: URLSearchParams }} props */
export function Filters({ query }) {
  const status = query.getAll("status");
  /** @param {string} name @param {string | string[] | null} value */
  const set = (name, value) => go(changed(query, name, value), { replace: true });
  /** @param {string} name */
  const flip = (name) => set("status", status.includes(name) ? status.filter((one) => one !== name) : [...status, name]);
  return html`<${FilterForm} count=${query.size}>
    <div class="chips" role="group" aria-label="Status">
      ${Object.entries(GROUPS).map(([name, group]) => {
        const pressed = group.length === status.length && group.every((one) => status.includes(one));
        return html`<button type="button" key=${name} class="chip group" aria-pressed=${pressed} onClick=${() => set("status", pressed ? [] : group)}>
          ${name}
        </button>`;
      })}
      ${STATUSES.map(
        (name) => html`<button type="button" key=${name} class="chip ${name}" aria-pressed=${status.includes(name)} onClick=${() => flip(name)}>
          ${name.replace("_", " ")}
        </button>`,
      )}
    </div>
    <div class="fields">
      ${TEXTS.map(
        (name) => html`<${Field} key=${name} name=${name} label=${name} query=${query} set=${set} />`,
      )}
      <${Field} name="tag" label="tag" placeholder="name=value" query=${query} set=${set} />
      <${Menu} label=${query.has("since") || query.has("until") ? "Time: limited" : "Time"}>
        <div class="actions">
          ${Object.entries(QUICK).map(([name, at]) => html`<button type="button" key=${name} onClick=${() => set("since", written(at()))}>${name}</button>`)}
        </div>
        <${TimeField} name="since" label="created since" query=${query} set=${set} />
        <${TimeField} name="until" label="created before" query=${query} set=${set} />
      <//>
      ${query.get("parent") &&
      html`<button type="button" class="chip" aria-pressed="true" title="Remove" onClick=${() => set("parent", null)}>
        children of …${visible(query.get("parent")?.slice(-8))} <${Icon} name="cross" />
      </button>`}
      ${query.get("text") &&
      html`<button type="button" class="chip" aria-pressed="true" title="Remove" onClick=${() => set("text", null)}>
        contains “${visible(query.get("text"))}” <${Icon} name="cross" />
      </button>`}
      ${query.size > 0 && html`<a class="button quiet" href=${to("runs")}>Clear all</a>`}
      <${Menu} label="Columns" last>
        ${COLUMNS.map(
          ({ name, title }) => html`<label key=${name}>
            <input type="checkbox" checked=${chosen.value.has(name)} onChange=${() => toggle(name)} /> ${title}
          </label>`,
        )}
      <//>
    </div>
  <//>`;
}

/** @param {{ name: string, label: string, placeholder?: string, query: URLSearchParams, set: any }} props */
function Field({ name, label, placeholder = "", query, set }) {
  return html`<label class="field">
    <span>${label}</span>
    <input
      value=${query.get(name) ?? ""}
      placeholder=${placeholder}
      onChange=${(/** @type {any} */ event) => set(name, event.currentTarget.value || null)}
    />
    <${InvisibleLetters} value=${query.get(name)} />
  </label>`;
}

/** A time: local in the field, and with its zone in the address. @param {{ name: string, label: string, query: URLSearchParams, set: any }} props */
function TimeField({ name, label, query, set }) {
  const at = seconds(query.get(name) ?? "");
  /** @param {any} event */
  const change = ({ currentTarget: { value } }) => {
    const chosen = seconds(value);
    set(name, chosen === null ? null : written(chosen));
  };
  return html`<label class="field">
    <span>${label}</span>
    <input type="datetime-local" value=${at === null ? "" : local(at)} onChange=${change} />
  </label>`;
}

/** @param {URLSearchParams} query @param {string} name @param {string | string[] | null} value */
function changed(query, name, value) {
  const all = Object.fromEntries([...query.keys()].map((one) => [one, query.getAll(one)]));
  return to("runs", [], { ...all, [name]: value });
}
