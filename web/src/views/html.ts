/** Templates: `html` makes elements of preact from them; texts in them stay texts. */

import htm from "htm";
import { h, type VNode } from "preact";

export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: unknown[]) => VNode;

export type Content = VNode | string | number | null | undefined | false | readonly Content[];

export function classes(...names: (string | false | null | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}
