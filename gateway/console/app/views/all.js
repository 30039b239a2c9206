/**
 * The views, in the order of the navigation. To add one: write a module with a component that takes `names` and `query`
 * of the address, add it here, and add its `view` to `VIEWS` in `gateway/http/console.py`.
 */

import { Events } from "./events.js";
import { Executors } from "./executors.js";
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
 * @property {"operator"} [least] the role that the view requires, if not every role may see it
 */

/** @type {View[]} */
export const VIEWS = [
  { view: "", title: "Overview", sign: "◫", component: Overview },
  { view: "runs", title: "Runs", sign: "≡", component: Runs, one: Run },
  { view: "schedules", title: "Schedules", sign: "◷", component: Schedules, one: Schedule },
  { view: "executors", title: "Executors", sign: "▣", component: Executors },
  { view: "workers", title: "Workers", sign: "⚒", component: Workers },
  { view: "webhooks", title: "Webhooks", sign: "↗", component: Webhooks, least: "operator" },
  { view: "events", title: "Events", sign: "∿", component: Events },
  { view: "settings", title: "Settings", sign: "⚙", component: Settings },
];
