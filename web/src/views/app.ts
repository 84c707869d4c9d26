/** The frame of the page: where one can go, switches, and the screen that the address names. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { go, href, route } from "../route.ts";
import { nextTheme, nextTimeMode, theme, timeMode } from "./format.ts";
import { GraphFrame } from "./graph.ts";
import { Guard } from "./guard.ts";
import { Graphs } from "./graphs.ts";
import { Help } from "./help.ts";
import { html } from "./html.ts";
import { Palette } from "./palette.ts";
import { Opening } from "./opening.ts";
import { Empty, TroubleBox } from "./parts.ts";
import { PoisonView } from "./poison.ts";
import { Queues } from "./queues.ts";
import { Schedules } from "./schedules.ts";
import { SignIn } from "./signin.ts";
import { has, isSignedIn, lacking, type Needs, signOut, source, wanted } from "./source.ts";
import { broken, chooseArchive, openArchive } from "./file.ts";
import { StoreDoctor } from "./doctor.ts";
import { Workers } from "./workers.ts";
import { Compared } from "./compare.ts";

interface Screen {
  readonly name: string;
  readonly title: string;
  readonly view: () => VNode;
  readonly needs?: Needs;
}

const SCREENS: readonly Screen[] = [
  { name: "", title: "Graphs", view: Graphs },
  { name: "schedules", title: "Schedules", view: Schedules, needs: "graphs" },
  { name: "workers", title: "Workers", view: Workers, needs: "graphs" },
  { name: "queues", title: "Queues", view: Queues, needs: "graphs" },
  { name: "poison", title: "Poison", view: PoisonView, needs: "api" },
  { name: "doctor", title: "Doctor", view: StoreDoctor, needs: "api" },
  { name: "compare", title: "Compare", view: Compared, needs: "graphs" },
];

/** Those that the present source can fill. */
export function screens(): readonly Screen[] {
  return SCREENS.filter((each) => has(each.needs));
}

function Missing(): VNode {
  return html`<div class="page"><${Empty}>There is no such page. <a href=${href([])}>All graphs</a></${Empty}></div>`;
}

function screen(): VNode {
  if (!source.value) return html`<${Opening} />`;
  const name = route.value.path[0] ?? "";
  if (name === "g" && route.value.path[1]) return html`<${GraphFrame} key=${route.value.path[1]} />`;
  const found = SCREENS.find((each) => each.name === name);
  if (!found) return html`<${Missing} />`;
  if (!has(found.needs)) return html`<div class="page"><${TroubleBox} trouble=${lacking(found.needs)} /></div>`;
  return html`<${found.view} key=${name} />`;
}

function Top({ skip, help, palette }: Record<"skip" | "help" | "palette", () => void>): VNode {
  const name = route.value.path[0] ?? "";
  return html`<header class="top">
    <button type="button" class="skip" onClick=${skip}>Skip to the content</button>
    <a class="brand" href=${href([])}>taskgraph</a>
    <nav aria-label="Screens">
      ${screens().map((each) => {
        const present = each.name === name || (name === "g" && each.name === "");
        return html`<a key=${each.name} href=${href([each.name].filter(Boolean))}
          aria-current=${present ? "page" : undefined}>${each.title}</a>`;
      })}
    </nav>
    <span class="switches">
      <span class="source" title="What this page reads">${source.value?.rows.name}</span>
      ${!source.value?.api && html`<button type="button" onClick=${chooseArchive}
        title="A file that taskgraph archive has written">Open an archive …</button>`}
      <button type="button" onClick=${palette} title=${keyTitle("palette")}>Go to …</button>
      <button type="button" onClick=${nextTimeMode} title=${keyTitle("times")}>Times: ${timeMode.value}</button>
      <button type="button" onClick=${nextTheme} title=${keyTitle("theme")}>Theme: ${theme.value}</button>
      <button type="button" onClick=${help} title=${keyTitle("help")}>Keys</button>
      ${isSignedIn() && html`<button type="button" onClick=${signOut}>Sign out</button>`}
    </span>
  </header>`;
}

/** On a narrow screen rows of links scroll: the present one comes into sight. */
function useInSight(place: string): void {
  useEffect(() => {
    for (const link of document.querySelectorAll<HTMLElement>("nav [aria-current]")) {
      const nav = link.closest("nav")!;
      nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
    }
  }, [place]);
}

function useDrop(): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const drag = (event: DragEvent): void => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(event.type === "dragover" || (event.type === "dragleave" && event.relatedTarget !== null));
    };
    const drop = (event: DragEvent): void => {
      drag(event);
      const file = event.dataTransfer?.files[0];
      if (file) void openArchive(file);
    };
    addEventListener("dragover", drag);
    addEventListener("dragleave", drag);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drag);
      removeEventListener("dragleave", drag);
      removeEventListener("drop", drop);
    };
  }, []);
  return over;
}

export function App(): VNode {
  const [shown, setShown] = useState<"" | "help" | "palette">("");
  const dropped = useDrop();
  const main = useRef<HTMLElement>(null);
  const place = route.value.path.join("/");
  useEffect(() => {
    if (document.activeElement === document.body) main.current?.focus({ preventScroll: true });
  }, [place]);
  useInSight(place);
  // Of this one alone: a dialog says that it was closed when the next may be open already.
  const close = (name: typeof shown) => () => setShown((old) => (old === name ? "" : old));
  useKeys({
    help: () => setShown(shown === "help" ? "" : "help"),
    palette: () => setShown(shown === "palette" ? "" : "palette"),
    times: nextTimeMode,
    theme: nextTheme,
    home: () => go(href([])),
  });
  const skip = (): void => main.current?.focus();
  const frame = source.value && !source.value.judge ? "frame rows-alone" : "frame";
  return html`<div class=${frame}>
    <${Top} skip=${skip} help=${() => setShown("help")} palette=${() => setShown("palette")} />
    <main ref=${main} tabindex="-1">
      ${broken.value && html`<${TroubleBox} trouble=${broken.value} />`}
      ${wanted.value ? html`<${SignIn} />` : html`<${Guard} place=${place}>${screen()}</${Guard}>`}</main>
    ${shown === "help" && html`<${Help} close=${close("help")} />`}
    ${shown === "palette" && html`<${Palette} close=${close("palette")} />`}
    ${dropped && html`<div class="drop">Drop an archive to look at its graph</div>`}
  </div>`;
}
