/**
 * The record of a run: from the state, which follows every event, or else from the store. The state forgets a run some
 * time after its end, and a new state can lack it, so the store is asked again then.
 */

import { useEffect, useRef } from "../../../vendor/ui.js";
import { useReading } from "../../state/reading.js";
import { client, live } from "../../state/session.js";

/** @typedef {import("../../../greenroom.js").RunRecord} RunRecord */

/**
 * The record of a run, or why there is none. A view that uses this renders after each frame.
 * @param {string} name the id of the run, or the handle whose active run it is
 * @returns {{ run: RunRecord | null, problem: string }} with both, the record can be out of date
 */
export function useRecord(name) {
  const last = useRef(/** @type {RunRecord | null} */ (null));
  const { error, again } = useReading(async () => (last.current = live.runs.get(name) ?? (await client().getRun(name))), []);
  const known = live.runs.get(name);
  if (known) last.current = known;
  const isKnown = known !== undefined;
  useEffect(() => {
    if (!isKnown) again();
  }, [isKnown]);
  if (isKnown) return { run: known, problem: "" };
  return { run: error?.code === "not_found" ? null : last.current, problem: error?.message ?? "" };
}
