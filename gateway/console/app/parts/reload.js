/** Loads the page again, after a question if edits would be lost. */

import { html } from "../../vendor/ui.js";
import { mayLoseEdits } from "../state/unsaved.js";

export const Reload = () => html`<button onClick=${async () => (await mayLoseEdits()) && location.reload()}>Reload the page</button>`;
