/** All keys of the page: what they are called, where they count, and what they do is bound by the view that is open. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Key {
  /** As `KeyboardEvent.key` has it; `Ctrl+K` counts for ⌘ too. */
  readonly keys: readonly string[];
  readonly where: string;
  readonly what: string;
}

const key = (where: string, what: string, ...keys: string[]): Key => ({ keys, where, what });

export const KEYS = {
  help: key("Everywhere", "Show or hide these keys", "?"),
  palette: key("Everywhere", "Go to anything", "Ctrl+K"),
  close: key("Everywhere", "Close what is open; leave a field", "Escape"),
  search: key("Everywhere", "Go to the search field", "/"),
  times: key("Everywhere", "Times: local, UTC, relative", "t"),
  theme: key("Everywhere", "Theme: of the system, light, dark", "T"),
  home: key("Everywhere", "All graphs", "G"),
  down: key("Lists and tables", "Next row", "j", "ArrowDown"),
  up: key("Lists and tables", "Row before", "k", "ArrowUp"),
  open: key("Lists and tables", "Open the row", "Enter"),
  select: key("Lists and tables", "Select the row", "x", " "),
  selectAll: key("Lists and tables", "Select all that is shown, or none", "X"),
  tab1: key("A graph", "Summary", "1"),
  tab2: key("A graph", "Graph of tasks", "2"),
  tab3: key("A graph", "Timeline", "3"),
  tab4: key("A graph", "Tasks", "4"),
  tab5: key("A graph", "Journal", "5"),
  tab6: key("A graph", "As it was", "6"),
  tab7: key("A graph", "Change it", "7"),
  rerun: key("A graph", "Plan a rerun of what is selected, or of what failed", "r"),
  cancel: key("A graph", "Plan to cancel what is selected, or the graph", "c"),
  pause: key("A graph", "Plan to pause, or resume, the graph", "p"),
  nextFailed: key("A graph", "Next task that failed; in a log: next match", "n"),
  lastFailed: key("A graph", "Task before that failed; in a log: match before", "N"),
  fit: key("Graph of tasks, timeline", "Fit all into view", "f"),
  zoomIn: key("Graph of tasks, timeline", "Zoom in", "+", "="),
  zoomOut: key("Graph of tasks, timeline", "Zoom out", "-"),
  left: key("Graph of tasks, timeline", "To what the selected task requires", "ArrowLeft"),
  right: key("Graph of tasks, timeline", "To what requires it", "ArrowRight"),
  above: key("Graph of tasks, timeline", "To the task above it", "ArrowUp", "k"),
  below: key("Graph of tasks, timeline", "To the task below it", "ArrowDown", "j"),
  narrower: key("Graph of tasks, timeline", "Timeline: zoom out", "["),
  wider: key("Graph of tasks, timeline", "Timeline: zoom in", "]"),
  hide: key("Graph of tasks, timeline", "Hide what is completed", "h"),
  followRunning: key("Graph of tasks, timeline", "Graph: follow what runs", "F"),
  focus: key("Graph of tasks, timeline", "Focus on the selected task, or on all", "o"),
  expand: key("Graph of tasks, timeline", "Fold or unfold the group of the selected task", "e"),
  critical: key("Graph of tasks, timeline", "Timeline: critical path alone", "c"),
  forecast: key("Graph of tasks, timeline", "Timeline: the forecast, or not", "v"),
  why: key("A task", "Why it does not run", "w"),
  log: key("A task", "Its log", "l"),
  result: key("A task", "All of its result", "o"),
  toTask: key("A task", "From why or its log: the task", "u"),
  first: key("A log", "Its beginning", "g"),
  last: key("A log", "Its end", "End"),
  follow: key("A log", "Follow it as it grows", "F"),
  wrap: key("A log", "Wrap long lines", "W"),
  back: key("As it was", "One event back", "ArrowLeft"),
  forth: key("As it was", "One event on", "ArrowRight"),
  play: key("As it was", "Play or stop", "."),
  plan: key("A plan", "Plan the document that is written", "Ctrl+Enter"),
  apply: key("A plan", "Apply it", "a"),
} as const satisfies Record<string, Key>;

export type KeyName = keyof typeof KEYS;
export type Actions = Partial<Record<KeyName, (event: KeyboardEvent) => void>>;

interface Bound {
  readonly actions: () => Actions;
  /** Of a dialog: keys that were bound before it rest. */
  readonly isWall?: boolean;
}

const bound: Bound[] = [];

/** Keys that open or close a dialog, also above another one. */
const ABOVE_WALLS: ReadonlySet<KeyName> = new Set(["help", "palette"]);

/** Bind keys while a view is shown, from when it is seen; of several views the last that came counts. */
export function useKeys(actions: Actions): void {
  const latest = useRef(actions);
  latest.current = actions;
  useLayoutEffect(() => {
    const entry = { actions: () => latest.current };
    bound.push(entry);
    return () => {
      bound.splice(bound.indexOf(entry), 1);
    };
  }, []);
}

/** Let the keys of what is beneath rest while a dialog is shown, from its first drawing on. */
export function useWall(): void {
  const [wall] = useState(() => {
    const made = { actions: () => ({}), isWall: true };
    bound.push(made);
    return made;
  });
  useLayoutEffect(() => () => void bound.splice(bound.indexOf(wall), 1), []);
}

function named(event: KeyboardEvent): string {
  const control = event.ctrlKey || event.metaKey ? "Ctrl+" : "";
  return control + (control && event.key.length === 1 ? event.key.toUpperCase() : event.key);
}

const TYPED_INTO = "input:not([type=checkbox]):not([type=range]):not([type=radio]), textarea, select";

function isForElement(event: KeyboardEvent, pressed: string): boolean {
  const target = event.target as Element | null;
  if (!target?.matches) return false;
  if (target.matches(TYPED_INTO)) return pressed !== "Escape" && !pressed.startsWith("Ctrl+");
  const acts = pressed === "Enter" || pressed === " ";
  if (acts && target.matches("a, button, summary, input")) return true;
  return target.matches("input") && pressed.startsWith("Arrow");
}

function leaveField(event: KeyboardEvent): void {
  const target = event.target as HTMLElement | null;
  if (event.key !== "Escape" || !target?.matches?.(TYPED_INTO)) return;
  event.preventDefault(); // a browser empties the field, and says so to nothing
  target.blur();
}

function act(event: KeyboardEvent): void {
  const pressed = named(event);
  if (event.defaultPrevented || event.altKey || isForElement(event, pressed)) return;
  let isBeneath = false;
  for (let place = bound.length - 1; place >= 0; place--) {
    const actions = bound[place]!.actions();
    isBeneath ||= bound[place]!.isWall === true;
    for (const name of Object.keys(actions) as KeyName[]) {
      if (!(KEYS[name].keys as readonly string[]).includes(pressed)) continue;
      if (isBeneath && !ABOVE_WALLS.has(name)) continue;
      event.preventDefault();
      actions[name]!(event);
      return;
    }
  }
  leaveField(event);
}

export function startKeys(): void {
  addEventListener("keydown", act);
}

export function keyTitle(name: KeyName): string {
  return `${KEYS[name].what} (${KEYS[name].keys.map((each) => (each === " " ? "Space" : each)).join(", ")})`;
}
