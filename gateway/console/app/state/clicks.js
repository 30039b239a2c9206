/**
 * A button that sends a command ignores clicks until the command is answered, and for a second: a double click, or a
 * click out of impatience, sends one command.
 */

const REST = 1_000;
const LONGEST = 60; // letters of a button's name

/** @type {HTMLButtonElement | null} */
let clicked = null;
/** @type {WeakSet<Element>} */
const held = new WeakSet();

/** Watch the clicks of the page. */
export function watchClicks() {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button") : null;
    if (button && held.has(button)) {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    clicked = button;
    setTimeout(() => (clicked = null)); // after all listeners, and after the submit event of a form
  }, { capture: true });
}

/** The beginning of what the button that is being clicked says; empty if there is none. */
export const nameOfClicked = () => (clicked?.ariaLabel ?? clicked?.innerText ?? "").replace(/\s+/g, " ").trim().slice(0, LONGEST);

/** Let the button that is being clicked ignore clicks. Returns a function that ends this, after a second at the least. */
export function holdButton() {
  const button = clicked;
  if (button === null) return () => {};
  const until = Date.now() + REST;
  held.add(button);
  button.ariaDisabled = "true";
  const free = () => {
    held.delete(button);
    button.ariaDisabled = null;
  };
  return () => void setTimeout(free, Math.max(0, until - Date.now()));
}
