/** The bars of a time line: one for each phase, or one for several that are too narrow to be seen. Pure. */

/** @typedef {import("./timeline.js").Phase} Phase */
/**
 * @typedef {object} Bar
 * @property {number} from
 * @property {number} to
 * @property {number} count how many phases it stands for
 * @property {number} attempt of the first one
 * @property {[string, number][]} times how long each status lasted, in seconds; the longest first
 */

const PARTS = 300; // a phase that is shorter than such a part of the whole time line is about a pixel wide

/**
 * Neighbours that are too narrow become one bar until it is wide enough, so there are at most `2 * PARTS + 1` bars.
 * @param {readonly Phase[]} phases without gaps between them
 * @param {number} end of the phase that still lasts
 * @returns {Bar[]}
 */
export function barsOf(phases, end) {
  const narrow = phases.length === 0 ? 0 : ((phases.at(-1)?.to ?? end) - phases[0].from) / PARTS;
  /** @type {{ from: number, to: number, count: number, attempt: number, times: Map<string, number> }[]} */
  const found = [];
  for (const { status, from, to, attempt } of phases) {
    const until = to ?? end;
    const last = found.at(-1);
    if (last && last.to - last.from < narrow && until - from < narrow) {
      last.to = until;
      last.count += 1;
      last.times.set(status, (last.times.get(status) ?? 0) + until - from);
    } else {
      found.push({ from, to: until, count: 1, attempt, times: new Map([[status, until - from]]) });
    }
  }
  return found.map((bar) => ({ ...bar, times: [...bar.times].sort(([, one], [, other]) => other - one) }));
}
