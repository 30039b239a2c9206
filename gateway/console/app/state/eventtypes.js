/** The types of events, to choose from. Pure. */

/** @type {import("../../greenroom.js").EventType[]} */
export const EVENT_TYPES = [
  ...(/** @type {const} */ (["run_state_changed", "run_changed", "run_progress", "run_log", "run_waiting", "run_message", "run_signal"])),
  ...(/** @type {const} */ (["node_started", "node_ran", "interrupt_opened", "interrupt_closed"])),
  ...(/** @type {const} */ (["lane_changed", "handle_changed", "engine_changed", "flow_changed"])),
  ...(/** @type {const} */ (["node_worker_changed", "executor_changed", "node_changed", "leader_changed"])),
  ...(/** @type {const} */ (["schedule_changed", "schedule_fired", "schedule_missed", "webhook_changed"])),
];
