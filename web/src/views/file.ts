/** An archive of a graph, as `taskgraph archive` writes it: opened from a file, by a choice or by dropping it. */

import { signal } from "@preact/signals";

import { ArchiveRows } from "../rows/archive.ts";
import { go, href, route } from "../route.ts";
import { showArchive } from "./source.ts";

/** Why the last file could not be opened; null where it could. */
export const broken = signal<unknown>(null);

export async function openArchive(file: File): Promise<void> {
  try {
    const rows = await ArchiveRows.open(file);
    broken.value = null;
    showArchive(rows, file);
    const [first, id] = route.peek().path;
    if (first !== "g" || id !== rows.graph) go(href(["g", rows.graph]));
  } catch (trouble) {
    broken.value = trouble;
  }
}

/** In a report the archive is a text of the document, as base64. */
const inlined = (): string => document.getElementById("archive")?.textContent?.trim() ?? "";

export const isReport = (): boolean => inlined() !== "";

export function openReport(): void {
  const bytes = Uint8Array.from(atob(inlined()), (each) => each.charCodeAt(0));
  void openArchive(new File([bytes], "this report"));
}

export function chooseArchive(): void {
  const input = document.createElement("input");
  input.type = "file";
  input.accept = ".gz,.jsonl,application/gzip";
  input.addEventListener("change", () => {
    const [file] = input.files ?? [];
    if (file) void openArchive(file);
  });
  input.click();
}
