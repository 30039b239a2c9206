/**
 * Whether a person is at a part of the page: the pointer or the keyboard is on it, or was pressed there a moment ago.
 * Meanwhile, what is there must not move, so that a click never hits what the person has not aimed at.
 */

import { useEffect, useRef, useSignal } from "../../vendor/ui.js";

const CALM = 2_000; // after a click, also without a pointer that stays, as on a phone
const LEAVING = 500; // the pointer can come back

/** @returns {{ resting: import("../../vendor/ui.js").Signal<boolean>, handlers: object }} `handlers`: for the element */
export function useResting() {
  const resting = useSignal(false);
  const at = useRef({ inside: false, clicked: -CALM, left: -LEAVING, timer: 0 }).current;
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => () => clearTimeout(at.timer), []);

  const endIfLeft = () => {
    clearTimeout(at.timer);
    const keyboard = document.querySelector(":focus-visible");
    if (at.inside || (keyboard && place.current?.contains(keyboard))) return;
    const wait = Math.max(at.clicked + CALM, at.left + LEAVING) - performance.now();
    if (wait > 0) at.timer = window.setTimeout(endIfLeft, wait);
    else resting.value = false;
  };
  /** @param {any} event */
  const begin = (event) => {
    place.current = event.currentTarget;
    resting.value = true;
  };
  const handlers = {
    onPointerEnter: (/** @type {any} */ event) => {
      at.inside = true;
      begin(event);
    },
    onPointerLeave: () => {
      at.inside = false;
      at.left = performance.now();
      endIfLeft();
    },
    onPointerDown: (/** @type {any} */ event) => {
      at.clicked = performance.now();
      begin(event);
    },
    onFocusIn: begin,
    onFocusOut: () => setTimeout(endIfLeft), // once the next element has the focus
  };
  return { resting, handlers };
}
