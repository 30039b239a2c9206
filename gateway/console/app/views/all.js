/**
 * The views, in the order of the navigation. To add one: write a module with a component that takes `names` and `query`
 * of the address, add it here, and add its `view` to `VIEWS` in `gateway/http/console.py`.
 */

import { later } from "../parts/later.js";
import { live } from "../state/session.js";
import { Events } from "./events.js";
import { Executors } from "./executors.js";
import { Handle } from "./handles/handle.js";
import { Handles } from "./handles/handles.js";
import { Inbox } from "./interrupts.js";
import { Overview } from "./overview.js";
import { Run } from "./run/run.js";
import { Runs } from "./runs/runs.js";
import { Schedule } from "./schedules/schedule.js";
import { Schedules } from "./schedules/schedules.js";
import { Settings } from "./settings/settings.js";
import { Webhooks } from "./webhooks.js";
import { Workers } from "./workers.js";

/**
 * @typedef {object} View
 * @property {string} view the first part of the address
 * @property {string} title
 * @property {string} sign a letter that stands for the view
 * @property {any} component
 * @property {any} [one] the component for one of them, by the second part of the address
 * @property {() => number} [open] how many of them wait for a person
 * @property {"operator"} [least] the role that the view requires, if not every role may see it
 */

const Flows = later((suffix) => import(`./flows/flows.js${suffix}`), "Flows");
const Flow = later((suffix) => import(`./flows/flow.js${suffix}`), "Flow");

/** @type {View[]} */
export const VIEWS = [
  { view: "", title: "Overview", sign: "◫", component: Overview },
  { view: "runs", title: "Runs", sign: "≡", component: Runs, one: Run },
  { view: "handles", title: "Handles", sign: "◉", component: Handles, one: Handle },
  { view: "flows", title: "Flows", sign: "⌥", component: Flows, one: Flow },
  { view: "interrupts", title: "Interrupts", sign: "?", component: Inbox, open: () => live.interrupts.value.length },
  { view: "schedules", title: "Schedules", sign: "◷", component: Schedules, one: Schedule },
  { view: "executors", title: "Executors", sign: "▣", component: Executors },
  { view: "workers", title: "Workers", sign: "⚒", component: Workers },
  { view: "webhooks", title: "Webhooks", sign: "↗", component: Webhooks, least: "operator" },
  { view: "events", title: "Events", sign: "∿", component: Events },
  { view: "settings", title: "Settings", sign: "⚙", component: Settings },
];
