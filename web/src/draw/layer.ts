/** A picture of a part of the world, drawn once and copied while the view moves. */

import type { View } from "./camera.ts";
import type { Context } from "./marks.ts";

/** How much of the view's size a picture reaches beyond each of its sides. */
const BEYOND = 0.3;

/** The view of a picture for this view: larger, but no larger than the world. */
export function around(view: View, world: { width: number; height: number }): View {
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
export function covers(picture: View, view: View, world: { width: number; height: number }): boolean {
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
