/** The page: reads its address, opens what that names, shows it. */

import { h, render } from "preact";

import { startKeys } from "./keys.ts";
import { startRouting } from "./route.ts";
import { App } from "./views/app.ts";
import { isReport, openReport } from "./views/file.ts";
import { showTheme, startClock } from "./views/format.ts";
import { startSource } from "./views/source.ts";

if (window.top !== window.self) throw new Error("this page is not shown in a frame of another"); // it may be a trap
startSource(); // first: it takes what is secret out of the address
startRouting();
if (isReport()) openReport();
startKeys();
startClock();
showTheme();
render(h(App, {}), document.body);
