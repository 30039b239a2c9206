/** Components whose modules are loaded when they are first shown. `LATER` in `gateway/http/console.py` names them. */

import { html, signal, useEffect } from "../../vendor/ui.js";
import { compareFiles, outdated } from "../state/files.js";
import { onReturn } from "../state/reading.js";
import { Reload } from "./reload.js";

/**
 * The component of this name in a module. `load` imports it; it appends its argument to the address, because a browser
 * never loads a module again that it could not load.
 * @template {string} Name
 * @param {(suffix: string) => Promise<Record<Name, any>>} load
 * @param {Name} name
 */
export function later(load, name) {
  const loaded = signal(/** @type {any} */ (null));
  const failures = signal(0);
  const begin = () =>
    load(failures.peek() ? `?${failures.peek()}` : "").then(
      (module) => (loaded.value = { component: module[name] }),
      () => {
        failures.value += 1;
        compareFiles();
      },
    );
  return function Later(/** @type {any} */ props) {
    useEffect(() => {
      if (loaded.peek()) return;
      begin();
      return onReturn(() => void (failures.peek() && !loaded.peek() && begin()));
    }, []);
    if (loaded.value) return html`<${loaded.value.component} ...${props} />`;
    if (failures.value === 0) return null;
    if (outdated.value) return html`<p class="error-text" role="alert">This part of the console cannot be loaded, because the server has a newer console.</p><${Reload} />`;
    return html`<p class="error-text" role="alert">This part of the console cannot be loaded.</p><button onClick=${begin}>Load it again</button>`;
  };
}
