/** The colours of drawings, from the custom properties of the page, for the theme that holds now. */

import { TASK_STATES } from "../model/states.ts";

export interface Looks {
  readonly text: string;
  readonly quiet: string;
  readonly ground: string;
  readonly panel: string;
  readonly line: string;
  readonly edge: string;
  readonly accent: string;
  readonly found: string;
  /** By code of `TASK_STATES`. */
  readonly states: readonly string[];
  /** From short to long, and for names: without an order. */
  readonly ramp: readonly string[];
  readonly names: readonly string[];
  readonly font: string;
}

/** Light and dark, where the page does not say otherwise. */
const STATES: Readonly<Record<string, string>> = {
  unscheduled: "light-dark(#7d8896, #8a96a8)",
  pending: "light-dark(#c98a12, #e3b341)",
  running: "light-dark(#1767d2, #58a6ff)",
  completed: "light-dark(#2f8a46, #43a85b)",
  failed: "light-dark(#c5221f, #ff7068)",
  exception: "light-dark(#8e24aa, #d58be8)",
  cancelled: "light-dark(#74564a, #b99c8f)",
  skipped: "light-dark(#5f7d8c, #8fa9b5)",
};

const PARTS = {
  text: "var(--text, CanvasText)",
  quiet: "var(--soft, light-dark(#566070, #a3adba))",
  ground: "var(--ground, light-dark(#ffffff, #12161c))",
  panel: "var(--raised, light-dark(#f6f7f9, #1c222b))",
  line: "var(--line, light-dark(#d3d8df, #38414d))",
  edge: "var(--edge, light-dark(#66758a, #7688a0))",
  accent: "var(--focus, light-dark(#0b57d0, #8ab4f8))",
  found: "var(--found, light-dark(#d9480f, #ffa94d))",
};

/** Where the system sets the colours, the ground and what is written on it are its own. */
const FORCED: typeof PARTS = {
  text: "CanvasText", quiet: "CanvasText", ground: "Canvas", panel: "Canvas", line: "GrayText", edge: "GrayText",
  accent: "Highlight", found: "Highlight",
};

const RAMP = ["#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#7b3294", "#b2182b"];
const NAMES = [
  "light-dark(#1f77b4, #6fb1e0)", "light-dark(#c2610c, #ffa657)", "light-dark(#2b8a3e, #69c47f)",
  "light-dark(#b3261e, #ff8a80)", "light-dark(#7b4fb5, #bf9bec)", "light-dark(#80594b, #c4a093)",
  "light-dark(#b84b95, #f0a1d6)", "light-dark(#66707c, #a9b3bf)", "light-dark(#85820f, #d4d04c)",
  "light-dark(#0f8a99, #5ed3df)",
];

/** What each color of the page is now; `of` is any element within it. */
export function looks(of: HTMLElement): Looks {
  const probe = document.createElement("span");
  probe.hidden = true;
  (of.parentElement ?? document.body).append(probe);
  probe.style.setProperty("forced-color-adjust", "none");
  const read = (colour: string): string => {
    probe.style.color = "";
    probe.style.color = colour;
    return getComputedStyle(probe).color;
  };
  const wanted = matchMedia("(forced-colors: active)").matches ? FORCED : PARTS;
  const parts = Object.fromEntries(Object.entries(wanted).map(([name, colour]) => [name, read(colour)]));
  const found = {
    ...(parts as Record<keyof typeof PARTS, string>),
    states: TASK_STATES.map((each) => read(`var(${each.colour}, ${STATES[each.name] ?? "CanvasText"})`)),
    ramp: RAMP,
    names: NAMES.map(read),
    font: getComputedStyle(of).fontFamily || "sans-serif",
  };
  probe.remove();
  return found;
}

/** Calls when the colours may have changed: the system's theme or contrast, or an attribute of the page's root. */
export function watchLooks(changed: () => void): () => void {
  const themes = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "(prefers-contrast: more)"];
  const queries = themes.map((each) => matchMedia(each));
  for (const query of queries) query.addEventListener("change", changed);
  const watch = new MutationObserver(changed);
  for (const each of [document.documentElement, document.body]) {
    watch.observe(each, { attributes: true, attributeFilter: ["class", "style", "data-theme"] });
  }
  return () => {
    watch.disconnect();
    for (const query of queries) query.removeEventListener("change", changed);
  };
}

/** How long something took, short: 840 ms, 12 s, 3 min 20 s, 2 h 5 min. */
export function duration(ms: number): string {
  if (!(ms >= 0)) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (hours === 0) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
