/** The small map in a corner: the whole drawing in points, and what of it is in view. */

import type { View } from "./camera.ts";
import type { Size } from "./layer.ts";
import type { Looks } from "./looks.ts";
import { BAD, type Context, type Shown } from "./marks.ts";
import type { Scene } from "./scene.ts";

const [WIDTH, HEIGHT, EDGE] = [190, 120, 10];

export class SmallMap {
  private readonly points = new OffscreenCanvas(WIDTH, HEIGHT);

  /** What is too bad to miss is drawn last, and larger. */
  draw(scene: Scene, shown: Shown): void {
    const context = this.points.getContext("2d")!;
    const palette = colours(shown.palette);
    const image = context.createImageData(WIDTH, HEIGHT);
    const pixels = new Uint32Array(image.data.buffer);
    const [across, down] = [WIDTH / scene.columns, HEIGHT / scene.height];
    const [wide, high] = [Math.max(1, Math.floor(across * 0.6)), Math.max(1, Math.floor(down * 0.7))];
    const put = (node: number, more: number): void => {
      const left = Math.floor((scene.x[node]! + 0.2) * across);
      const top = Math.floor(scene.y[node]! * down);
      const colour = palette[shown.colour[node]!]!;
      for (let y = top; y < Math.min(HEIGHT, top + high + more); y++) {
        for (let x = left; x < Math.min(WIDTH, left + wide + more); x++) pixels[y * WIDTH + x] = colour;
      }
    };
    for (let i = 0; i < scene.count; i++) put(i, 0);
    for (let i = 0; i < scene.count; i++) if (BAD.has(shown.state[i]!)) put(i, 1);
    context.putImageData(image, 0, 0);
  }

  paint(context: Context, view: View, world: Size, looks: Looks): void {
    const [left, top] = [view.width - WIDTH - EDGE, view.height - HEIGHT - EDGE];
    context.globalAlpha = 0.94;
    context.fillStyle = looks.panel;
    context.fillRect(left - 4, top - 4, WIDTH + 8, HEIGHT + 8);
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.strokeStyle = looks.line;
    context.strokeRect(left - 4.5, top - 4.5, WIDTH + 9, HEIGHT + 9);
    context.drawImage(this.points, left, top);
    const [across, down] = [WIDTH / world.width, HEIGHT / world.height];
    const clamp = (at: number, most: number): number => Math.max(0, Math.min(at, most));
    const [x1, x2] = [clamp(view.x * across, WIDTH), clamp((view.x + view.width / view.kx) * across, WIDTH)];
    const [y1, y2] = [clamp(view.y * down, HEIGHT), clamp((view.y + view.height / view.ky) * down, HEIGHT)];
    context.strokeStyle = looks.accent;
    context.lineWidth = 2;
    context.strokeRect(left + x1, top + y1, Math.max(3, x2 - x1), Math.max(3, y2 - y1));
  }

  /** The point of the world under a pixel of the map, undefined beside it. */
  at(x: number, y: number, view: View, world: Size): { x: number; y: number } | undefined {
    const [left, top] = [x - (view.width - WIDTH - EDGE), y - (view.height - HEIGHT - EDGE)];
    if (left < -4 || top < -4 || left > WIDTH + 4 || top > HEIGHT + 4) return undefined;
    return { x: (left / WIDTH) * world.width, y: (top / HEIGHT) * world.height };
  }
}

/** Colours of the page as pixels. */
function colours(palette: readonly string[]): Uint32Array {
  const context = new OffscreenCanvas(palette.length, 1).getContext("2d", { willReadFrequently: true })!;
  palette.forEach((colour, i) => {
    context.fillStyle = colour;
    context.fillRect(i, 0, 1, 1);
  });
  return new Uint32Array(context.getImageData(0, 0, palette.length, 1).data.buffer);
}
