/** Templates: `html` makes elements of preact from them. Texts in them stay texts, and none turns or hides letters. */

import htm from "htm";
import { h, type VNode } from "preact";

import { shown } from "./format.ts";

/** Attributes that are read, or spoken. */
const SAID = ["title", "aria-label", "aria-valuetext", "placeholder"] as const;

type Props = Record<string, unknown> | null;

function clear(part: unknown): unknown {
  if (typeof part === "string") return shown(part);
  return Array.isArray(part) ? part.map(clear) : part;
}

function element(type: Parameters<typeof h>[0], props: Props, ...children: unknown[]): unknown {
  for (const name of SAID) if (typeof props?.[name] === "string") props[name] = shown(props[name]);
  return (h as (...all: unknown[]) => unknown)(type, props, ...children.map(clear));
}

export const html = htm.bind(element) as (strings: TemplateStringsArray, ...values: unknown[]) => VNode;

export type Content = VNode | string | number | null | undefined | false | readonly Content[];

export function classes(...names: (string | false | null | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}
