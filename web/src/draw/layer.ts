/** A picture of a part of the world, drawn once and copied while the view moves. */

import type { View } from "./camera.ts";
import type { Context } from "./marks.ts";

/** Milliseconds: what takes longer waits until the zoom rests. */
const SLOW = 12;
const REST = 120;
/** How much of the view's size a picture reaches beyond each of its sides. */
const BEYOND = 0.3;

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The view of a picture for this view: larger, but no larger than the world. */
export function around(view: View, world: Size): View {
  const axis = (from: number, size: number, scale: number, long: number): [number, number] => {
    const low = Math.max(from - (BEYOND * size) / scale, Math.min(from, -1));
    const high = Math.min(from + ((1 + BEYOND) * size) / scale, Math.max(from + size / scale, long + 1));
    const [least, most] = [Math.max(low, -1), Math.min(high, long + 1)];
    return [least, Math.max(1, Math.ceil((most - least) * scale))];
  };
  const [x, width] = axis(view.x, view.width, view.kx, world.width);
  const [y, height] = axis(view.y, view.height, view.ky, world.height);
  return { x, y, kx: view.kx, ky: view.ky, width, height };
}

/** Whether a picture has all of the world that the view shows, at its scale. */
export function covers(picture: View, view: View, world: Size): boolean {
  if (picture.kx !== view.kx || picture.ky !== view.ky) return false;
  const axis = (has: number, hasSize: number, from: number, size: number, scale: number, long: number): boolean =>
    has <= Math.max(from, -0.99) && has + hasSize / scale >= Math.min(from + size / scale, long + 0.99);
  return (
    axis(picture.x, picture.width, view.x, view.width, view.kx, world.width) &&
    axis(picture.y, picture.height, view.y, view.height, view.ky, world.height)
  );
}

export function copy(context: Context, image: CanvasImageSource, picture: View, view: View, ratio: number): void {
  const [wide, high] = [(picture.width / picture.kx) * view.kx, (picture.height / picture.ky) * view.ky];
  // Whole pixels: a copy that is not stretched stays sharp and is fast.
  const snap = (at: number): number => Math.round(at * ratio) / ratio;
  context.drawImage(image, snap((picture.x - view.x) * view.kx), snap((picture.y - view.y) * view.ky), wide, high);
}

type Draw = (on: Context, part: View) => void;

/** A picture of what is too much to draw in each frame; drawn anew when it does not fit any more. */
export class Still {
  private image: OffscreenCanvas | undefined;
  private view: View | undefined;
  private of: unknown;
  private took = 0;
  private later = 0;

  constructor(private readonly repaint: () => void) {}

  /** `of` stands for what `draw` draws: another one asks for another picture. */
  paint(context: Context, view: View, world: Size, ratio: number, of: unknown, draw: Draw): void {
    const fits = this.view && this.of === of && covers(this.view, view, world);
    clearTimeout(this.later);
    if (!fits && this.view && this.of === of && this.view.kx !== view.kx && this.took > SLOW) {
      // The old picture is stretched meanwhile.
      this.later = window.setTimeout(() => ((this.of = undefined), this.repaint()), REST);
    } else if (!fits) {
      const begun = performance.now();
      const part = around(view, world);
      const [width, height] = [Math.ceil(part.width * ratio), Math.ceil(part.height * ratio)];
      this.image ??= new OffscreenCanvas(width, height);
      if (this.image.width !== width) this.image.width = width;
      if (this.image.height !== height) this.image.height = height;
      const on = this.image.getContext("2d")!;
      on.setTransform(ratio, 0, 0, ratio, 0, 0);
      on.clearRect(0, 0, width, height);
      draw(on, part);
      [this.view, this.of, this.took] = [part, of, performance.now() - begun];
    }
    copy(context, this.image!, this.view!, view, ratio);
  }

  destroy(): void {
    clearTimeout(this.later);
  }
}
