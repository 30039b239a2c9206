/**
 * Where the focus is after a change of the page. A new view begins at its heading. If what has the focus disappears, as
 * an answered interrupt does, the focus moves to its list or to the heading, so that the keyboard and screen readers do
 * not begin again at the top of the document.
 */

/** Move the focus to the heading of the view; screen readers read it. */
export function focusHeading() {
  const heading = document.querySelector("h1");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/** Move the focus to the list of the view; screen readers read its active row. */
export function focusList() {
  /** @type {HTMLElement | null} */ (document.querySelector(".virtual"))?.focus({ preventScroll: true });
}

/** Keep the focus in the page. */
export function keepFocus() {
  /** @type {Node | null} */
  let last = null;
  const note = () => (last = document.activeElement === document.body ? null : document.activeElement);
  document.addEventListener("focusin", note);
  document.addEventListener("click", note, { capture: true }); // beside everything, which leaves the focus nowhere
  new MutationObserver((records) => {
    if (!last || last.isConnected || document.activeElement !== document.body) return;
    const around = records.find(({ removedNodes }) => [...removedNodes].some((node) => node.contains(last)))?.target;
    if (around instanceof Element && around.isConnected && around.closest(".virtual")) focusList();
    else focusHeading();
  }).observe(document.body, { childList: true, subtree: true });
}
