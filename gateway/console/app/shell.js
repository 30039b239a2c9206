/** What surrounds every view: navigation, search, connection, role, theme, help, messages and questions. */

import { html, useEffect, useRef } from "../vendor/ui.js";
import { Connection } from "./connection.js";
import { Login } from "./login.js";
import { Dialogs, ask } from "./parts/dialog.js";
import { Icon } from "./parts/icon.js";
import { Reload } from "./parts/reload.js";
import { Text } from "./parts/text.js";
import { address, go, to } from "./state/address.js";
import { moment, now } from "./state/clock.js";
import { outdated } from "./state/files.js";
import { focusHeading } from "./state/focus.js";
import { shortcuts, useShortcuts } from "./state/keys.js";
import { caller, limits, limitsInWords, live, logOut, lost, may, phase, role, trouble } from "./state/session.js";
import { changeTheme, theme } from "./state/theme.js";
import { useTitle } from "./state/title.js";
import { dismiss, forgetErrors, toasts } from "./state/toasts.js";
import { dropKept, mayLoseEdits } from "./state/unsaved.js";
import { VIEWS } from "./views/all.js";
import { sought } from "./views/runs/filter.js";

const MOST_SHOWN = 999; // in the navigation

export function Shell() {
  if (phase.value === "login") return html`<${Login} />`;
  if (phase.value === "connecting") return html`<${Connecting} />`;
  return html`<${Page} />`;
}

function Connecting() {
  return html`<main class="alone" aria-live="polite">
    <h1>Greenroom</h1>
    <p>Connecting…</p>
    ${trouble.value &&
    html`<p class="error-text"><${Text} value=${trouble.value} /></p>
      <button onClick=${logOut}>Log in with another token</button>`}
  </main>`;
}

function Page() {
  const { view: name, names, query } = address.value;
  const view = VIEWS.find((one) => one.view === name);
  const component = [view?.component, view?.one][names.length]; // an address has at most two parts
  useShortcuts(() => [{ key: "?", what: "Show the keyboard shortcuts", run: help }], []);
  useEffect(dropKept, []);
  useEffect(() => {
    document.querySelector(".views [aria-current]")?.scrollIntoView({ block: "nearest", inline: "start" }); // on a phone
  }, [view]);
  useTitle(view?.title, names, may("operator") ? live.interrupts.value.length : 0);
  const opened = useRef("");
  const path = [name, ...names].join("/");
  useEffect(() => {
    if (opened.current) {
      focusHeading();
      forgetErrors();
    }
    opened.current = `/${path}`;
  }, [path]);
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <${Header} />
    <nav class="views" aria-label="Views">
      ${VIEWS.filter((one) => refusal(one) === "").map((one) => html`<${ViewLink} key=${one.view} view=${one} current=${one === view} />`)}
    </nav>
    <main id="content" tabindex="-1">
      <${LostConnection} />
      <${NewerConsole} />
      ${view && refusal(view)
        ? html`<div class="title"><h1>${view.title}</h1></div><p><${Text} value=${refusal(view)} /></p>`
        : component
        ? html`<${component} key=${path} names=${names} query=${query} />`
        : html`<h1>Not found</h1><p>No view has this address. <a href=${to("")}>Go to the overview.</a></p>`}
    </main>
    <${Toasts} />
    <${Dialogs} />
  `;
}

function LostConnection() {
  if (!lost.value) return null;
  return html`<p class="page-bar lost-bar" role="alert">
    The connection is lost. This page shows the state of ${moment(now.value)}, and actions are refused until the connection is back.
  </p>`;
}

function NewerConsole() {
  if (lost.value || !outdated.value) return null;
  return html`<p class="page-bar newer-bar" role="status"><span>The server has a newer console.</span> <${Reload} /></p>`;
}

/** Why this caller may not see a view; empty if it may. @param {import("./views/all.js").View} view */
function refusal({ title, least, whole }) {
  if (least && !may(least)) return `${title} are only for the role ${least} and above. Your role is ${role.value}.`;
  return whole && limits.value ? `Your token may not see this: it is limited to ${limitsInWords()}.` : "";
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/** @param {{ view: import("./views/all.js").View, current: boolean }} props */
function ViewLink({ view, current }) {
  const open = view.open?.() ?? 0;
  return html`<a href=${to(view.view)} aria-current=${current ? "page" : undefined}>
    <${Icon} name=${view.sign} /><span>${view.title}</span>
    ${open > 0 && html`<span class="badge number">${open > MOST_SHOWN ? `${MOST_SHOWN}+` : open}<span class="hidden"> open</span></span>`}
  </a>`;
}

function Header() {
  return html`<header>
    <a class="brand" href=${to("")}><span class="logo" aria-hidden="true"></span>Greenroom</a>
    <${Search} />
    <${Connection} />
    <div class="session">
      ${caller.value && html`<span title="the name of the token"><${Text} value=${caller.value} /></span>`}
      <span class="role" title="your role">${role.value}</span>
      <button class="quiet" onClick=${changeTheme} aria-label=${`Theme: ${theme.value}`} title=${`Theme: ${theme.value}`}>
        <${Icon} name=${theme.value === "dark" ? "moon" : theme.value === "light" ? "sun" : "half"} />
      </button>
      <button class="quiet" onClick=${help} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">?</button>
      ${caller.value && html`<button class="quiet" onClick=${async () => (await mayLoseEdits()) && logOut()}>Log out</button>`}
    </div>
  </header>`;
}

/** All values of each name. @param {URLSearchParams} query */
const repeated = (query) => Object.fromEntries([...query.keys()].map((name) => [name, query.getAll(name)]));

/** Search among runs. The id of a run opens it. */
function Search() {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const { view, names, query } = address.value;
  const inList = view === "runs" && names.length === 0;
  useShortcuts(() => [{ key: "/", what: "Search", run: () => field.current?.select() }], []);
  /** @param {any} event */
  const search = (event) => {
    event.preventDefault();
    const { run, text } = sought(/** @type {HTMLInputElement} */ (field.current).value, live.runs);
    field.current?.blur();
    if (run) go(to("runs", [run]));
    else go(to("runs", [], { ...(inList ? repeated(query) : {}), text }));
  };
  return html`<form class="search" role="search" onSubmit=${search}>
    <input
      ref=${field}
      type="search"
      name="text"
      aria-label="Search runs"
      placeholder="Search runs, or paste the id of one"
      key=${query.get("text")}
      defaultValue=${inList ? query.get("text") ?? "" : ""}
    />
    <kbd aria-hidden="true">/</kbd>
  </form>`;
}

function help() {
  ask({ title: "Keyboard shortcuts", body: html`<${Keys} />`, choices: [] });
}

function Keys() {
  return html`<dl class="keys">
    ${shortcuts.value.map(({ key, what }) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}
  </dl>`;
}

function Toasts() {
  return html`<div class="toasts" aria-live="polite">
    ${toasts.value.map(
      ({ id, text, kind }) => html`<div key=${id} class="toast ${kind}" role=${kind === "error" ? "alert" : undefined}>
        <${Text} value=${text} lines />
        <button class="quiet" aria-label="Dismiss" onClick=${() => dismiss(id)}><${Icon} name="cross" /></button>
      </div>`,
    )}
  </div>`;
}
