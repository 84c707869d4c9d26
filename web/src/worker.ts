/** What takes long, off the thread that draws. */

import { layout, type Shape } from "./draw/layout.ts";

/** A question carries a number, and the answer the same. */
export interface Ask {
  readonly ask: number;
  readonly shape: Shape;
}

self.addEventListener("message", (event: MessageEvent<Ask>) => {
  const places = layout(event.data.shape);
  const all = [places.level, places.slot, places.chain].flatMap((each) => (each ? [each.buffer as ArrayBuffer] : []));
  self.postMessage({ ask: event.data.ask, places }, { transfer: all });
});
