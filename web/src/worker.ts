/** What takes long, off the thread that draws: where tasks stand, and pictures of edges. */

import { Edges, type Lines, type Pen } from "./draw/edges.ts";
import { layout, type Places, type Shape } from "./draw/layout.ts";

/** A question and its answer have the same number. */
export type Ask = { readonly ask: number } & (
  | { readonly shape: Shape }
  | { readonly lines: Lines }
  /** A picture of the edges of the last `lines`. */
  | { readonly pen: Pen }
);

export type Answer = { readonly ask: number } & (
  | { readonly places: Places }
  | { readonly picture: ImageBitmap; readonly pen: Pen }
);

let edges: Edges | undefined;
let canvas: OffscreenCanvas | undefined;

function picture(pen: Pen): ImageBitmap {
  const [width, height] = [Math.ceil(pen.view.width * pen.ratio), Math.ceil(pen.view.height * pen.ratio)];
  canvas ??= new OffscreenCanvas(width, height);
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  edges!.paint(canvas.getContext("2d")!, pen);
  return canvas.transferToImageBitmap();
}

self.addEventListener("message", ({ data }: MessageEvent<Ask>) => {
  if ("lines" in data) edges = new Edges(data.lines);
  else if ("shape" in data) {
    const places = layout(data.shape);
    const all = [places.level, places.slot, places.chain].flatMap((each) => (each ? [each.buffer as ArrayBuffer] : []));
    self.postMessage({ ask: data.ask, places } satisfies Answer, { transfer: all });
  } else if ("pen" in data && edges) {
    const made = picture(data.pen);
    self.postMessage({ ask: data.ask, picture: made, pen: data.pen } satisfies Answer, { transfer: [made] });
  }
});
