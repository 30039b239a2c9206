/** Keyed things that stay in place while a person is near: what is gone stays as it was, and what is new is apart. */

import { useRef } from "../../vendor/ui.js";

/**
 * @template T
 * @param {[string, T][]} entries
 * @param {boolean} holds whether a person is near
 * @param {number} [release] with another number, what is new is shown with the others
 * @returns {{ shown: { key: string, value: T, gone: boolean }[], added: [string, T][] }}
 */
export function useKept(entries, holds, release = 0) {
  const kept = useRef(/** @type {Map<string, T> | null} */ (null));
  const released = useRef(release);
  if (!holds || released.current !== release) kept.current = null;
  released.current = release;
  const now = new Map(entries);
  if (holds) kept.current = new Map([...(kept.current ?? now)].map(([key, value]) => [key, now.get(key) ?? value]));
  const shown = [...(kept.current ?? now)].map(([key, value]) => ({ key, value, gone: !now.has(key) }));
  return { shown, added: entries.filter(([key]) => kept.current !== null && !kept.current.has(key)) };
}
