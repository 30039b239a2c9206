/** The next due times of what a person types. The server computes them, so they are those that the schedule will have. */

import { html, useEffect, useState } from "../../../vendor/ui.js";
import { Text } from "../../parts/text.js";
import { onReturn } from "../../state/reading.js";
import { client } from "../../state/session.js";
import { NextTimes } from "./times.js";

const PAUSE = 300; // after the last key, so that a word leads to one question

/** @typedef {{ cron: string, timezone: string } | { every: number }} Times */

/** @param {{ times: Times }} props */
export function Preview({ times }) {
  const [next, setNext] = useState(/** @type {number[]} */ ([]));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let open = true;
    const read = async () => {
      try {
        const found = await client().schedules.preview(times);
        if (open) setNext(found), setProblem("");
      } catch (error) {
        if (open) setNext([]), setProblem(/** @type {Error} */ (error).message);
      }
    };
    const due = setTimeout(read, PAUSE);
    const ignoreReturn = onReturn(read);
    return () => {
      open = false;
      clearTimeout(due);
      ignoreReturn();
    };
  }, [JSON.stringify(times)]);
  const { cron = null, timezone = "UTC" } = "every" in times ? {} : times;
  return html`<div class="wide preview" aria-live="polite">
    ${problem && html`<p class="error-text"><${Text} value=${problem} /></p>`}
    ${next.length > 0 && html`<${NextTimes} schedule=${{ next, cron, timezone, paused: false }} />`}
  </div>`;
}
