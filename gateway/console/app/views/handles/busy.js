/** What a submission does if its handle is busy, in words: the values of `on_conflict` that every run can have. */

export const BUSY = {
  reject: "refuse",
  queue: "wait until the handle is free",
  replace: "cancel the active run, and start next",
  join: "join the active run if job and parameters are equal",
};
