/** The console begins here. */

import { html, render } from "../vendor/ui.js";
import { Shell } from "./shell.js";
import { followLinks } from "./state/address.js";
import { keepFocus } from "./state/focus.js";
import { listenToKeys } from "./state/keys.js";
import { start } from "./state/session.js";

followLinks();
listenToKeys();
keepFocus();
render(html`<${Shell} />`, /** @type {Element} */ (document.getElementById("app")));
start();
