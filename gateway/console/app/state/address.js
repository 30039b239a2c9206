/**
 * The address of the page as a signal, and the way to change it. Each view has an address, whose query is the state of
 * the view that a link should contain, such as filters.
 *
 * The root is found from the address of this module, so the console also works below a prefix.
 */

import { signal } from "../../vendor/ui.js";
import { isUnsaved, mayLeave } from "./unsaved.js";

/**
 * @typedef {object} Address
 * @property {string} view the first part of the path; empty for the overview
 * @property {string[]} names the other parts, decoded
 * @property {URLSearchParams} query
 */

const ROOT = new URL("../../../../", import.meta.url);

/** The URL of the overview. */
export const HOME = ROOT.href;

/** The URL of the gateway's WebSocket. */
export const SOCKET = ROOT.href.replace(/^http/, "ws");

/** @type {import("../../vendor/ui.js").Signal<Address>} */
export const address = signal(read());

/** The href of the shown view: during a question, the browser's own is already the next one. */
let shown = location.href;

/** @returns {Address} */
function read() {
  const path = location.pathname.slice(ROOT.pathname.length);
  const [view = "", ...names] = path.split("/").map(decoded);
  return { view, names: names.filter(Boolean), query: new URLSearchParams(location.search) };
}

/**
 * A name as a part of a path. A slash is `~2F`, since many proxies decode `%2F`, and a name of dots is `~2E`, since
 * browsers remove those from addresses.
 * @param {string} name
 */
function encoded(name) {
  const plain = name.replaceAll("~", "~7E").replace(/^\.{1,2}$/, (dots) => "~2E".repeat(dots.length));
  return encodeURIComponent(plain).replace(/%(2F|5C)/g, "~$1");
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part).replace(/~(2E|2F|5C|7E)/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
  } catch {
    return part;
  }
}

/**
 * The address of a view: `to("runs", [id])`. Parameters without a value are left out.
 * @param {string} view
 * @param {string[]} [names]
 * @param {Record<string, string | string[] | null | undefined>} [query]
 */
export function to(view, names = [], query = {}) {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    [value ?? []].flat().filter(Boolean).map((one) => [name, one]),
  );
  const search = pairs.length > 0 ? `?${new URLSearchParams(pairs)}` : "";
  return ROOT.pathname + [view, ...names].map(encoded).join("/") + search;
}

/** What a view finds again when the person comes back to this entry of the history. @type {() => unknown} */
let kept = () => null;

/** Keep something for the person's return. Returns a function that ends it. @param {() => unknown} what plain data */
export function keep(what) {
  kept = what;
  return () => void (kept = () => null);
}

/** What was kept when the person left this entry of the history; null if it is a new one. */
export const found = () => history.state;

/**
 * Go to an address; if edits would be lost, only when the person agrees. `replace`: without an entry in the history, as
 * for each letter of a filter.
 * @param {string} href
 */
export async function go(href, { replace = false } = {}) {
  if (isUnsaved() && !(await mayLeave())) return;
  if (replace) history.replaceState(null, "", href);
  else {
    history.replaceState(kept(), "");
    history.pushState(null, "", href);
    window.scrollTo(0, 0);
  }
  show();
}

function show() {
  shown = location.href;
  address.value = read();
}

/** Let links within the console change the address without loading the page again. */
export function followLinks() {
  for (const icon of document.querySelectorAll("link[rel=icon]")) {
    icon.setAttribute("href", /** @type {HTMLLinkElement} */ (icon).href); // browsers read it again at each address
  }
  window.addEventListener("popstate", async () => {
    const left = shown;
    if (isUnsaved() && !(await mayLeave())) return history.pushState(null, "", left);
    show();
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || event.defaultPrevented || event.button !== 0 || link.target || link.hasAttribute("download")) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.origin !== location.origin || !link.pathname.startsWith(ROOT.pathname)) return;
    event.preventDefault();
    go(link.href);
  });
}
