/**
 * Interrupts that stay where they are while a person is at them, so that a click never answers one that the person has
 * not read. Meanwhile, closed ones stay in place, and new ones are only counted, or appended.
 */

import { useEffect, useRef, useSignal } from "../../../vendor/ui.js";
import { useResting } from "../../state/resting.js";
import { client } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").InterruptState} InterruptState */
/** @typedef {import("../../../greenroom.js").InterruptClosed} InterruptClosed */
/** @typedef {[string, InterruptState][]} List */

/**
 * @param {List} open the open interrupts, in the order in which they are shown
 * @param {{ appends?: boolean, also?: boolean }} [options] `appends`: show new ones below the others, which then stay in
 *   place; `also`: whether the person is at another part of the page that these must not move
 * @returns {{ list: List, closed: Map<string, InterruptClosed | null>, added: number, resting: boolean, release: () => void, handlers: object }}
 *   `closed`: those of the list that are not open any more, with the event if it arrived; `added`: how many open ones
 *   came since the person is there; `resting`: whether the person is at the list; `handlers`: for the element around it
 */
export function useHeld(open, { appends = false, also = false } = {}) {
  const { resting, handlers } = useResting();
  const held = useRef(/** @type {List | null} */ (null));
  const first = useRef(0); // how many of them the list had when the person came
  const events = useRef(/** @type {Map<string, InterruptClosed>} */ (new Map()));
  const releases = useSignal(0);
  releases.value; // renders again

  const holds = resting.value || also;
  const holding = useRef(holds);
  holding.current = holds;
  useEffect(
    () =>
      client().onEvent((event) => {
        if (event.type === "interrupt_closed" && (holding.current || resting.peek())) events.current.set(event.interrupt, event);
      }, { types: ["interrupt_closed"] }),
    [],
  );
  const forget = () => {
    held.current = null;
    events.current.clear();
  };
  if (!holds) forget();
  else if (held.current === null) {
    held.current = open;
    first.current = open.length;
  } else if (appends) {
    const known = new Set(held.current.map(([id]) => id));
    held.current = [...held.current, ...open.filter(([id]) => !known.has(id))];
  }
  const list = held.current ?? open;
  const stillOpen = new Set(open.map(([id]) => id));
  const closed = new Map(list.filter(([id]) => !stillOpen.has(id)).map(([id]) => [id, events.current.get(id) ?? null]));
  const appended = held.current === null ? [] : list.slice(first.current).filter(([id]) => stillOpen.has(id));
  const added = appends ? appended.length : open.length - (list.length - closed.size);
  const release = () => {
    forget();
    releases.value += 1;
  };
  return { list, closed, added, resting: resting.value, release, handlers };
}
