/** A button that opens a small box. `Escape`, a click outside and the focus elsewhere close it. */

import { html, useEffect, useRef } from "../../vendor/ui.js";

/** `last`: at the end of its line. @param {{ label: string, last?: boolean, children?: any }} props */
export function Menu({ label, last = false, children }) {
  const place = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  useEffect(() => {
    const leave = (/** @type {Event} */ { target }) => {
      if (place.current?.open && target instanceof Node && !place.current.contains(target)) place.current.open = false;
    };
    const escape = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" || !place.current?.open) return;
      event.stopPropagation(); // it means nothing else now
      place.current.open = false;
      place.current.querySelector("summary")?.focus();
    };
    const options = { capture: true };
    for (const kind of ["click", "focusin"]) document.addEventListener(kind, leave, options);
    document.addEventListener("keydown", escape, options);
    return () => {
      for (const kind of ["click", "focusin"]) document.removeEventListener(kind, leave, options);
      document.removeEventListener("keydown", escape, options);
    };
  }, []);
  return html`<details ref=${place} class="menu ${last ? "last" : ""}">
    <summary class="button">${label}</summary>
    <div class="menu-body">${children}</div>
  </details>`;
}
