/** The view that asks for a token. The token is sent in the first message of the connection, never in an address. */

import { html, useRef } from "../vendor/ui.js";
import { Text, visible } from "./parts/text.js";
import { logIn, trouble } from "./state/session.js";
import { kept } from "./state/unsaved.js";

export function Login() {
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(/** @type {HTMLFormElement} */ (form.current));
    logIn(String(given.get("token")).trim(), given.has("keep"));
  };
  return html`<main class="alone">
    <h1><span class="logo" aria-hidden="true"></span>Greenroom</h1>
    <form ref=${form} onSubmit=${submit}>
      <label for="token">Token</label>
      <input id="token" name="token" type="password" autocomplete="current-password" required autofocus spellcheck=${false}
        placeholder="gr_…" aria-describedby="token-help" />
      <label class="check"><input type="checkbox" name="keep" /> Keep me logged in on this device</label>
      ${trouble.value && html`<p class="error-text" role="alert"><${Text} value=${trouble.value} /></p>`}
      ${kept.value?.edits && html`<p role="status">What you have edited is kept until you log in${kept.value.by && ` as ${visible(kept.value.by)}`} again.</p>`}
      <button class="primary">Log in</button>
    </form>
    <p id="token-help" class="faint">An administrator creates tokens with <code>greenroom token add</code>.</p>
  </main>`;
}
