/** The form of the list's filter. Every change is in the address at once. */

import { html } from "../../../vendor/ui.js";
import { InvisibleLetters, visible } from "../../parts/text.js";
import { go, to } from "../../state/address.js";
import { COLUMNS, chosen, toggle } from "./columns.js";
import { ENDED, FAILED, PENDING, STATUSES } from "./filter.js";

const TEXTS = ["job", "flow", "handle", "lane"];
const GROUPS = { "all pending": PENDING, "all ended": ENDED, "all failures": FAILED };

/** @param {{ query: URLSearchParams }} props */
export function Filters({ query }) {
  const status = query.getAll("status");
  /** @param {string} name @param {string | string[] | null} value */
  const set = (name, value) => go(changed(query, name, value), { replace: true });
  /** @param {string} name */
  const flip = (name) => set("status", status.includes(name) ? status.filter((one) => one !== name) : [...status, name]);
  return html`<form class="filters" aria-label="Filter" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
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
      <details class="menu">
        <summary class="button">${query.has("since") || query.has("until") ? "Time: limited" : "Time"}</summary>
        <div class="menu-body">
          <${Field} name="since" label="created since" type="datetime-local" query=${query} set=${set} />
          <${Field} name="until" label="created before" type="datetime-local" query=${query} set=${set} />
        </div>
      </details>
      ${query.get("parent") &&
      html`<button type="button" class="chip" aria-pressed="true" title="Remove" onClick=${() => set("parent", null)}>
        children of …${visible(query.get("parent")?.slice(-8))} ✕
      </button>`}
      ${query.get("text") &&
      html`<button type="button" class="chip" aria-pressed="true" title="Remove" onClick=${() => set("text", null)}>
        contains “${visible(query.get("text"))}” ✕
      </button>`}
      ${query.size > 0 && html`<a class="button quiet" href=${to("runs")}>Clear all</a>`}
      <details class="menu last">
        <summary class="button">Columns</summary>
        <div class="menu-body">
          ${COLUMNS.map(
            ({ name, title }) => html`<label key=${name}>
              <input type="checkbox" checked=${chosen.value.has(name)} onChange=${() => toggle(name)} /> ${title}
            </label>`,
          )}
        </div>
      </details>
    </div>
  </form>`;
}

/** @param {{ name: string, label: string, type?: string, placeholder?: string, query: URLSearchParams, set: any }} props */
function Field({ name, label, type = "text", placeholder = "", query, set }) {
  return html`<label class="field">
    <span>${label}</span>
    <input
      type=${type}
      value=${query.get(name) ?? ""}
      placeholder=${placeholder}
      onChange=${(/** @type {any} */ event) => set(name, event.currentTarget.value || null)}
    />
    <${InvisibleLetters} value=${query.get(name)} />
  </label>`;
}

/** @param {URLSearchParams} query @param {string} name @param {string | string[] | null} value */
function changed(query, name, value) {
  const all = Object.fromEntries([...query.keys()].map((one) => [one, query.getAll(one)]));
  return to("runs", [], { ...all, [name]: value });
}
