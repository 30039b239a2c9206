/**
 * Interrupts that stay where they are while a person is at them, so that a click never answers one that the person has
 * not read. Meanwhile, new ones are only counted, and closed ones stay in place. It ends when the pointer and the
 * keyboard have left the list, and some time after the last click.
 */

import { useEffect, useRef, useSignal } from "../../../vendor/ui.js";
import { client } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").InterruptState} InterruptState */
/** @typedef {import("../../../greenroom.js").InterruptClosed} InterruptClosed */
/** @typedef {[string, InterruptState][]} List */

const CALM = 2_000; // after a click, also without a pointer that stays, as on a phone

/**
 * @param {List} open the open interrupts, in the order in which they are shown
 * @returns {{ list: List, closed: Map<string, InterruptClosed | null>, added: number, release: () => void, handlers: object }}
 *   `closed`: those of the list that are not open any more, with the event if it arrived; `added`: how many open ones the
 *   list does not have; `handlers`: for the element around the list
 */
export function useHeld(open) {
  const held = useSignal(/** @type {List | null} */ (null));
  const events = useRef(/** @type {Map<string, InterruptClosed>} */ (new Map()));
  const at = useRef({ inside: false, clicked: -CALM, timer: 0 }).current;
  const place = useRef(/** @type {HTMLElement | null} */ (null));

  useEffect(() => () => clearTimeout(at.timer), []);
  useEffect(
    () =>
      client().onEvent((event) => {
        if (event.type === "interrupt_closed" && held.peek() !== null) events.current.set(event.interrupt, event);
      }, { types: ["interrupt_closed"] }),
    [],
  );

  const release = () => {
    held.value = null;
    events.current.clear();
  };
  const releaseIfLeft = () => {
    clearTimeout(at.timer);
    if (at.inside || place.current?.querySelector(":focus-visible")) return;
    const wait = at.clicked + CALM - performance.now();
    if (wait > 0) at.timer = window.setTimeout(releaseIfLeft, wait);
    else release();
  };
  /** @param {any} event */
  const hold = (event) => {
    place.current = event.currentTarget;
    held.value ??= open;
  };
  const handlers = {
    onPointerEnter: (/** @type {any} */ event) => {
      at.inside = true;
      hold(event);
    },
    onPointerLeave: () => {
      at.inside = false;
      releaseIfLeft();
    },
    onPointerDown: (/** @type {any} */ event) => {
      at.clicked = performance.now();
      hold(event);
    },
    onFocusIn: hold,
    onFocusOut: () => setTimeout(releaseIfLeft), // once the next element has the focus
  };

  const list = held.value ?? open;
  const stillOpen = new Set(open.map(([id]) => id));
  const closed = new Map(list.filter(([id]) => !stillOpen.has(id)).map(([id]) => [id, events.current.get(id) ?? null]));
  return { list, closed, added: open.length - (list.length - closed.size), release, handlers };
}
