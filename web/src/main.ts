/** The page: reads its address, opens what that names, shows it. */

import { h, render } from "preact";

import { startKeys } from "./keys.ts";
import { startRouting } from "./route.ts";
import { App } from "./views/app.ts";
import { showTheme, startClock } from "./views/format.ts";
import { startSource } from "./views/source.ts";

startSource(); // first: it takes what is secret out of the address
startRouting();
startKeys();
startClock();
showTheme();
render(h(App, {}), document.body);
