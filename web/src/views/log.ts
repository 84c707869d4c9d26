/** The log of a run: read in pieces from its end, searched whole, followed while the run goes on. */

import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { CODE } from "../model/states.ts";
import { Trouble } from "../rows/port.ts";
import { go, here, href, route, set } from "../route.ts";
import { bytes as size, count } from "./format.ts";
import { type Of, taskAt, taskHref } from "./graph.ts";
import { classes, html } from "./html.ts";
import { useVirtual } from "./list.ts";
import { inWindow, type Line, LogWindow, PIECE, pieces, type Read, search, SEARCHED_MAX } from "./logtext.ts";
import { Empty, Loading, TroubleBox } from "./parts.ts";
import { noted, source } from "./source.ts";

const WHOLE = 1024 * 1024;
const LINE_SHOWN = 4_000;
const FOUND_MAX = 10_000;
const FIRST_PAUSE = 1_000;
const LAST_PAUSE = 15_000;
const LINE_HEIGHT = 20;

interface Opened {
  readonly window: LogWindow | null;
  readonly trouble: unknown;
}

/** The window on a log, filled around the place in the address, and what is called when it has changed. */
function useLog(read: Read, name: string): Opened & { changed: () => void } {
  const [, changed] = useReducer((old: number, _: void) => old + 1, 0);
  const [opened, setOpened] = useState<Opened & { name: string }>({ window: null, trouble: null, name });
  useEffect(() => {
    let over = false;
    const window = new LogWindow(read);
    const at = Number(route.peek().query.get("at") ?? Number.NaN);
    const fill = async (): Promise<void> => {
      await (Number.isFinite(at) ? window.around(at) : window.atEnd());
      while (!over && window.total <= WHOLE && window.start > 0) await window.earlier();
      while (!over && window.total <= WHOLE && window.end < window.total && (await window.later()) > 0);
    };
    fill().then(
      () => over || setOpened({ window, trouble: null, name }),
      (trouble: unknown) => over || setOpened({ window: null, trouble: noted(trouble), name }),
    );
    return () => {
      over = true;
    };
  }, [name]);
  const present = opened.name === name ? opened : { window: null, trouble: null };
  return { ...present, changed: () => changed(undefined) };
}

/** Read on while the run goes on and the page is seen, more rarely where nothing comes. */
function useFollow(window: LogWindow | null, on: boolean, changed: () => void): void {
  useEffect(() => {
    if (!window || !on) return undefined;
    let timer: ReturnType<typeof setTimeout>;
    let pause = FIRST_PAUSE;
    const look = async (): Promise<void> => {
      if (!document.hidden) {
        const came = await window.later().catch(() => 0);
        pause = came > 0 ? FIRST_PAUSE : Math.min(LAST_PAUSE, pause * 1.5);
        if (came > 0) changed();
      }
      timer = setTimeout(() => void look(), pause);
    };
    timer = setTimeout(() => void look(), pause);
    return () => clearTimeout(timer);
  }, [window, on]);
}

interface Found {
  readonly places: readonly number[];
  readonly part: number;
  readonly over: boolean;
}

function useSearch(read: Read, wanted: string, name: string): Found {
  const [found, setFound] = useState<Found>({ places: [], part: 0, over: true });
  useEffect(() => {
    let over = false;
    setFound({ places: [], part: 0, over: wanted === "" });
    if (!wanted) return undefined;
    const run = async (): Promise<void> => {
      const places: number[] = [];
      for await (const each of search(read, wanted)) {
        if (over) return;
        places.push(...each.found);
        setFound({ places: [...places], part: each.total ? each.searched / each.total : 1, over: false });
        if (places.length > FOUND_MAX) break;
      }
      setFound((old) => ({ ...old, over: true }));
    };
    const timer = setTimeout(() => void run().catch(() => setFound((old) => ({ ...old, over: true }))), 250);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [wanted, name]);
  return found;
}

function marked(text: string, wanted: string): (string | VNode)[] {
  if (!wanted) return [text];
  const parts: (string | VNode)[] = [];
  const low = text.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), html`<mark>${text.slice(at, at + wanted.length)}</mark>`);
    from = at + wanted.length;
  }
  return [...parts, text.slice(from)];
}

function LineOf({
  line,
  number,
  wanted,
  present,
}: {
  line: Line;
  number: string;
  wanted: string;
  present: boolean;
}): VNode {
  const long = line.text.length > LINE_SHOWN;
  const parts = useMemo(() => pieces(long ? line.text.slice(0, LINE_SHOWN) : line.text), [line.text]);
  return html`<div class=${present ? "line present" : "line"}>
    <a class="number" href=${here({ at: line.at })} aria-label=${`Link to line ${number}`}>${number}</a>
    <span class="text">${parts.map(
      (each) =>
        html`<span class=${each.classes} style=${{ color: each.colour, backgroundColor: each.ground }}>
          ${marked(each.text, wanted)}</span>`,
    )}${long && html`<em> … ${count(line.text.length - LINE_SHOWN)} more characters</em>`}</span>
  </div>`;
}

function Lines({
  window,
  wanted,
  wrap,
  follow,
  changed,
}: {
  window: LogWindow;
  wanted: string;
  wrap: boolean;
  follow: boolean;
  changed: () => void;
}): VNode {
  const { lines } = window;
  const { scroller, virtual } = useVirtual(lines.length, LINE_HEIGHT, wrap);
  const at = Number(route.value.query.get("at") ?? Number.NaN);
  const place = Number.isFinite(at) ? window.placeOf(at) : -1;
  const busy = useRef(false);
  useEffect(() => {
    if (!Number.isFinite(at) || busy.current) return;
    if (place >= 0) virtual.scrollToIndex(place, { align: "center" });
    else if (at < window.total) void window.around(at).then(changed);
  }, [at, place < 0]);
  useEffect(() => {
    if (follow || (!Number.isFinite(at) && lines.length > 0)) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [window, follow, follow ? lines.length : 0]);
  const more = (): void => {
    const box = scroller.current;
    if (!box || busy.current) return;
    const up = box.scrollTop < 2000 && window.start > 0;
    const down = box.scrollHeight - box.scrollTop - box.clientHeight < 2000 && window.end < window.total;
    if (!up && !down) return;
    busy.current = true;
    const act = up ? window.earlier() : window.later();
    void act
      .then((came) => {
        changed();
        if (up) box.scrollTop += came * LINE_HEIGHT;
      })
      .finally(() => {
        busy.current = false;
      });
  };
  const jump = (index: number, align: "start" | "end"): void => virtual.scrollToIndex(index, { align });
  useKeys({
    down: () => scroller.current?.scrollBy({ top: LINE_HEIGHT * 3 }),
    up: () => scroller.current?.scrollBy({ top: -LINE_HEIGHT * 3 }),
    first: () =>
      window.start > 0 ? void window.around(0).then(() => (changed(), jump(0, "start"))) : jump(0, "start"),
    last: () =>
      window.end < window.total
        ? void window.atEnd().then(() => (changed(), jump(window.lines.length - 1, "end")))
        : jump(lines.length - 1, "end"),
  });
  const number = (index: number): string => (window.first ? String(window.first + index) : `+${lines[index]!.at}`);
  return html`<div class=${classes("log", wrap && "wrap")} role="region" aria-label="Log" tabindex="0" ref=${scroller}
    onScroll=${more}>
    <div class="lines" style=${{ height: `${virtual.getTotalSize()}px` }}>
      ${virtual.getVirtualItems().map(
        (item) => html`<div
          key=${lines[item.index]?.at}
          data-index=${item.index}
          class="at"
          style=${{ transform: `translateY(${item.start}px)` }}
          ref=${wrap ? (element: HTMLElement | null) => element && virtual.measureElement(element) : undefined}
        >
          <${LineOf} line=${lines[item.index]!} number=${number(item.index)} wanted=${wanted}
            present=${item.index === place} />
        </div>`,
      )}
    </div>
  </div>`;
}

function Runs({ id, name, run, present }: { id: string; name: string; run: number; present: number }): VNode | null {
  if (present === 0) return null;
  const all = Array.from({ length: present + 1 }, (_, each) => each);
  return html`<nav class="runs" aria-label="Runs">
    ${all.slice(-20).map((each) => html`<a key=${each} href=${href(["g", id, "t", name, "log"], { run: each })}
      aria-current=${each === run ? "page" : undefined}>run ${each}</a>`)}
  </nav>`;
}

/** Hand a whole log to the browser, to be kept as a file. */
async function save(read: Read, name: string): Promise<void> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (let at = 0; ; ) {
    const { bytes, total } = await read(at, 4 * PIECE);
    parts.push(new Uint8Array(bytes));
    at += bytes.length;
    if (bytes.length === 0 || at >= total) break;
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
  link.download = name.replaceAll(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Over the whole file; of a very long one over what is in the window. */
function useFound(window: LogWindow | null, read: Read, wanted: string, name: string): Found & { large: boolean } {
  const large = (window?.total ?? 0) > SEARCHED_MAX;
  const whole = useSearch(read, window && !large ? wanted : "", name);
  const lines = window?.lines;
  const here = useMemo(() => (window && large && wanted ? inWindow(window, wanted) : []), [lines, large, wanted]);
  return large ? { places: here, part: 1, over: true, large } : { ...whole, large };
}

function said({ places, part, over }: Found, at: number): string {
  const number = places.length > FOUND_MAX ? `over ${count(FOUND_MAX)}` : count(places.length);
  const ordinal = places.findIndex((each) => each >= at) + 1;
  const searched = over ? "" : `, ${Math.floor(part * 100)} % searched`;
  const word = places.length === 1 ? "line" : "lines";
  return `${number} ${word}${searched}${ordinal > 0 && at >= 0 ? `; at ${count(ordinal)}` : ""}`;
}

export function LogView({ open, graph }: Of): VNode {
  const { path, query } = route.value;
  const label = path[3] ?? "";
  const place = taskAt(open, label);
  const task = graph.ids[place] ?? label;
  const run = Number(query.get("run") ?? graph.run[place] ?? 0);
  const wanted = (query.get("q") ?? "").toLowerCase();
  const wrap = query.get("wrap") === "1";
  const running = graph.state[place] === CODE.running && run === graph.run[place];
  const follow = running && query.get("follow") !== "0";
  const name = `${open.id}/${task}/${run}/${source.value!.number}`;
  const read: Read = (start, length) => source.peek()!.rows.file(open.id, task, run, "run.log", start, length);
  const { window, trouble, changed } = useLog(read, name);
  useFollow(window, running, changed);
  const found = useFound(window, read, wanted, name);
  const at = Number(query.get("at") ?? -1);
  const step = (by: 1 | -1): void => {
    const next = by > 0 ? found.places.find((each) => each > at) : found.places.findLast((each) => each < at);
    const target = next ?? (by > 0 ? found.places[0] : found.places.at(-1));
    if (target !== undefined) set({ at: target, follow: "0" });
  };
  useKeys({
    search: () => document.getElementById("search-log")?.focus(),
    nextFailed: () => step(1),
    lastFailed: () => step(-1),
    wrap: () => set({ wrap: !wrap }),
    follow: () => set({ follow: follow ? "0" : null, at: null }),
    toTask: () => go(taskHref(open.id, label)),
    why: () => go(taskHref(open.id, label, "why")),
  });
  let content: VNode;
  if (window && window.total > 0)
    content = html`<${Lines} window=${window} wanted=${wanted} wrap=${wrap} follow=${follow} changed=${changed} />`;
  else if (window || (trouble instanceof Trouble && trouble.reason === "missing"))
    content = html`<${Empty}>This run has printed nothing${running ? " yet" : ""}.</${Empty}>`;
  else if (trouble) content = html`<${TroubleBox} trouble=${trouble} />`;
  else content = html`<${Loading} what="the log" />`;
  return html`<section class="fill">
    <h2>Log of <a class="label" href=${taskHref(open.id, label)}>${label}</a>, run ${run}</h2>
    <${Runs} id=${open.id} name=${label} run=${run} present=${graph.run[place] ?? run} />
    <div class="filters">
      <label class="field search"><span>Search in ${found.large ? "this part" : "all of it"}</span>
        <input id="search-log" type="search" value=${query.get("q") ?? ""} title=${keyTitle("search")}
          onInput=${(event: Event) => set({ q: (event.currentTarget as HTMLInputElement).value })}
          onKeyDown=${(event: KeyboardEvent) => event.key === "Enter" && step(event.shiftKey ? -1 : 1)} />
      </label>
      ${
        wanted &&
        html`<span role="status">
          ${said(found, at)}</span>
        <button type="button" class="small" onClick=${() => step(-1)} title=${keyTitle("lastFailed")}>▲ <span
          class="unseen">Match before</span></button>
        <button type="button" class="small" onClick=${() => step(1)} title=${keyTitle("nextFailed")}>▼ <span
          class="unseen">Next match</span></button>`
      }
      <label class="check"><input type="checkbox" checked=${wrap}
        onChange=${() => set({ wrap: !wrap })} /> Wrap lines</label>
      ${running && html`<label class="check"><input type="checkbox" checked=${follow}
        onChange=${() => set({ follow: follow ? "0" : null, at: null })} /> Follow</label>`}
      ${window && html`<span>${size(window.total)}</span>
        <button type="button" class="small" onClick=${() => void save(read, `${label}-${run}.log`)}>Save</button>`}
    </div>
    ${window && found.large && html`<p class="strip">This log is longer than ${size(SEARCHED_MAX)}: only what has
      been read is shown and searched, ${size(window.end - window.start)} from byte ${count(window.start)} on. More is
      read at both ends, and “Save” gives all of it.</p>`}
    ${content}
  </section>`;
}
