/** Whether the window is as narrow as a phone. The style sheets have the same limit. */

import { signal } from "../../vendor/ui.js";

const query = matchMedia("(max-width: 48rem)");

export const isPhone = signal(query.matches);
query.addEventListener("change", () => (isPhone.value = query.matches));
