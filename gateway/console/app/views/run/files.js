/** The finished files of a run, as downloads. */

import { html } from "../../../vendor/ui.js";
import { Text } from "../../parts/text.js";
import { useReading } from "../../state/reading.js";
import { client } from "../../state/session.js";
import { attempt } from "../../state/toasts.js";

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** No event tells that a file is finished, so the list can be read again. @param {{ id: string }} props */
export function Files({ id }) {
  const { value: files, error, again } = useReading(() => client().listFiles(id), ["run_state_changed"], [id]);
  if (error) return html`<section class="card"><h2>Files</h2><p class="error-text" role="alert"><${Text} value=${error.message} /></p></section>`;
  if (!files?.length) return null;
  return html`<section class="card" aria-labelledby="files-title">
    <div class="title">
      <h2 id="files-title">Files</h2>
      <span class="faint number">${files.length.toLocaleString()}</span>
      <button class="quiet" onClick=${again}>Read again</button>
    </div>
    <ul class="files">
      ${files.map(
        ({ path, size, folder }) => html`<li key=${`${folder} ${path}`}>
          ${folder
            ? html`<${Text} value=${path} mono /> <span class="faint">in the data folder <${Text} value=${folder} mono /> of an executor</span>`
            : html`<a href="#" onClick=${(/** @type {Event} */ event) => download(event, id, path).then(again)}><${Text} value=${path} mono /></a>
                <span class="faint number">${written(size ?? 0)}</span>`}
        </li>`,
      )}
    </ul>
  </section>`;
}

/** The link gets its address only now, because the address is valid once. @param {Event} event @param {string} id @param {string} path */
async function download(event, id, path) {
  event.preventDefault();
  const url = await attempt(async () => {
    const files = await client().listFiles(id); // the browser itself says little of a file that is gone
    if (!files.some((file) => file.path === path && !file.folder)) throw new Error(`the file ${path} does not exist any more`);
    return client().fileUrl(id, path);
  });
  if (url === undefined) return;
  const link = document.createElement("a");
  link.href = url;
  link.download = "";
  link.click();
}

/** A size in bytes, in the largest unit in which it is at least one. @param {number} size */
function written(size) {
  const unit = Math.min(UNITS.length - 1, size < 1 ? 0 : Math.floor(Math.log10(size) / 3));
  const value = size / 1000 ** unit;
  return `${value.toLocaleString(undefined, { maximumSignificantDigits: Math.max(3, Math.ceil(Math.log10(value + 1))) })} ${UNITS[unit]}`;
}
