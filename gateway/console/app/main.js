/** The console begins here. */

import { html, render } from "../vendor/ui.js";
import { Shell } from "./shell.js";
import { followLinks } from "./state/address.js";
import { watchClicks } from "./state/clicks.js";
import { keepFocus } from "./state/focus.js";
import { listenToKeys } from "./state/keys.js";
import { start } from "./state/session.js";

followLinks();
watchClicks();
listenToKeys();
keepFocus();
render(html`<${Shell} />`, /** @type {Element} */ (document.getElementById("app")));
start();
