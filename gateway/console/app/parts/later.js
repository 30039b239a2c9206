/** Components whose modules are loaded when they are first shown. `LATER` in `gateway/http/console.py` names them. */

import { html, signal, useEffect } from "../../vendor/ui.js";

/**
 * The component of this name in a module.
 * @template {string} Name
 * @param {() => Promise<Record<Name, any>>} load
 * @param {Name} name
 */
export function later(load, name) {
  const loaded = signal(/** @type {any} */ (null));
  const failed = signal(false);
  return function Later(/** @type {any} */ props) {
    useEffect(() => {
      load().then(
        (module) => (loaded.value = { component: module[name] }),
        () => (failed.value = true),
      );
    }, []);
    if (loaded.value) return html`<${loaded.value.component} ...${props} />`;
    return failed.value && html`<p class="error-text" role="alert">This part of the console cannot be loaded. Reload the page.</p>`;
  };
}
