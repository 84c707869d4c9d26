/** What part of a drawing is in view. Each axis has its own scale, so that wide and tall drawings both fit. */

export interface World {
  readonly width: number;
  readonly height: number;
  /** Pixels per unit at which nothing more is to be seen. */
  readonly mostX: number;
  readonly mostY: number;
}

/** A state of the camera: pixel = (world - origin) × scale. */
export interface View {
  readonly x: number;
  readonly y: number;
  readonly kx: number;
  readonly ky: number;
  readonly width: number;
  readonly height: number;
}

export interface Hand {
  /** The view changed. */
  readonly moved: () => void;
  readonly clicked?: (x: number, y: number) => void;
  /** The pointer is here; off the element when both are NaN. */
  readonly over?: (x: number, y: number) => void;
  /** A wheel scrolls up and down; with Ctrl it zooms. Else it zooms. */
  readonly scrolls?: boolean;
  /** Takes a drag that begins here, for example on the small map: the drag does not pan. */
  readonly takes?: (x: number, y: number) => boolean;
}

const CLICK = 4;
const EDGE = 24;
/** How far out one may zoom beyond the whole. */
const OUT = 0.4;

const clamp = (value: number, least: number, most: number): number => Math.max(least, Math.min(value, most));

export class Camera implements View {
  x = 0;
  y = 0;
  kx = 1;
  ky = 1;
  width = 1;
  height = 1;
  private world: World = { width: 1, height: 1, mostX: 1, mostY: 1 };
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private start = { x: 0, y: 0 };
  private dragged = false;
  private taken = false;
  private readonly stop = new AbortController();

  constructor(
    private readonly element: HTMLElement,
    private readonly hand: Hand,
    /** Pixels that a fit leaves free. */
    private readonly margin = { left: EDGE, top: EDGE, right: EDGE, bottom: EDGE },
  ) {
    const on = <K extends keyof HTMLElementEventMap>(name: K, act: (event: HTMLElementEventMap[K]) => void): void =>
      element.addEventListener(name, act, { signal: this.stop.signal, passive: false });
    element.style.touchAction = "none";
    on("pointerdown", (event) => this.press(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", (event) => this.release(event, true));
    on("pointercancel", (event) => this.release(event, false));
    on("pointerleave", () => hand.over?.(NaN, NaN));
    on("wheel", (event) => this.wheel(event));
    on("dblclick", (event) => this.zoom(2, event.offsetX, event.offsetY));
  }

  /** Pixels per unit at which all is in view. */
  get whole(): { kx: number; ky: number } {
    const { margin, world } = this;
    return {
      kx: Math.min(Math.max(1, this.width - margin.left - margin.right) / world.width, world.mostX),
      ky: Math.min(Math.max(1, this.height - margin.top - margin.bottom) / world.height, world.mostY),
    };
  }

  /** Whether all is in view, as large as it can be. */
  get fitted(): boolean {
    return this.kx === this.whole.kx && this.ky === this.whole.ky;
  }

  resize(width: number, height: number): void {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    this.bound();
  }

  /** Another drawing, or the same one grown. The view stays where it is. */
  show(world: World): void {
    this.world = world;
    this.bound();
  }

  fit(): void {
    const { kx, ky } = this.whole;
    [this.kx, this.ky] = [kx, ky];
    this.centre(this.world.width / 2, this.world.height / 2);
  }

  centre(x: number, y: number): void {
    const { margin } = this;
    this.x = x - (this.width + margin.left - margin.right) / 2 / this.kx;
    this.y = y - (this.height + margin.top - margin.bottom) / 2 / this.ky;
    this.bound();
    this.hand.moved();
  }

  /** Pans as little as brings this point into view. */
  reveal(x: number, y: number, room = 60): void {
    const [px, py] = [(x - this.x) * this.kx, (y - this.y) * this.ky];
    const dx = px - clamp(px, Math.min(room, this.width / 2), Math.max(this.width - room, this.width / 2));
    const dy = py - clamp(py, Math.min(room, this.height / 2), Math.max(this.height - room, this.height / 2));
    if (dx || dy) this.pan(-dx, -dy);
  }

  pan(dx: number, dy: number): void {
    this.x -= dx / this.kx;
    this.y -= dy / this.ky;
    this.bound();
    this.hand.moved();
  }

  /** About a pixel; about the middle where none is given. */
  zoom(by: number, atX = this.width / 2, atY = this.height / 2, only?: "x" | "y"): void {
    const [x, y] = [this.x + atX / this.kx, this.y + atY / this.ky];
    const { whole, world } = this;
    if (only !== "y") this.kx = clamp(this.kx * by, Math.min(whole.kx * OUT, world.mostX), world.mostX);
    if (only !== "x") this.ky = clamp(this.ky * by, Math.min(whole.ky * OUT, world.mostY), world.mostY);
    this.x = x - atX / this.kx;
    this.y = y - atY / this.ky;
    this.bound();
    this.hand.moved();
  }

  view(): View {
    const { x, y, kx, ky, width, height } = this;
    return { x, y, kx, ky, width, height };
  }

  destroy(): void {
    this.stop.abort();
  }

  /** What fits is in view whole; of the rest the edge comes as far as a third into the view, if one does not scroll. */
  private bound(): void {
    const { world, margin } = this;
    const axis = (from: number, scale: number, size: number, long: number, low: number, high: number): number => {
      const room = (size - low - high) / scale;
      if (long <= room * 1.001) return (this.hand.scrolls ? 0 : (long - room) / 2) - low / scale;
      const slack = this.hand.scrolls ? 0 : room * 0.3;
      return clamp(from, -low / scale - slack, long - room - low / scale + slack);
    };
    this.x = axis(this.x, this.kx, this.width, world.width, margin.left, margin.right);
    this.y = axis(this.y, this.ky, this.height, world.height, margin.top, margin.bottom);
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0 && event.pointerType === "mouse") return;
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.element.setPointerCapture(event.pointerId);
    if (this.pointers.size > 1) {
      this.dragged = true;
      return;
    }
    this.start = { x: event.offsetX, y: event.offsetY };
    this.dragged = false;
    this.taken = this.hand.takes?.(event.offsetX, event.offsetY) ?? false;
  }

  private move(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    const now = { x: event.offsetX, y: event.offsetY };
    if (!before) {
      this.hand.over?.(now.x, now.y);
      return;
    }
    if (this.taken) {
      this.hand.takes!(now.x, now.y);
      return;
    }
    if (Math.hypot(now.x - this.start.x, now.y - this.start.y) > CLICK) this.dragged = true;
    if (!this.dragged) return;
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    if (!other) {
      // The press itself did not pan, so that a click does not move the drawing.
      this.pan(now.x - before.x, now.y - before.y);
      return;
    }
    const far = (point: { x: number; y: number }): number => Math.hypot(point.x - other.x, point.y - other.y);
    this.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
    if (far(before) > 8) this.zoom(far(now) / far(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
  }

  private release(event: PointerEvent, done: boolean): void {
    if (!this.pointers.delete(event.pointerId)) return;
    if (done && !this.dragged && !this.taken) this.hand.clicked?.(event.offsetX, event.offsetY);
    if (this.pointers.size === 0) this.taken = false;
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? this.height : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const { scrolls } = this.hand;
    if (event.shiftKey) this.pan(-(dx || dy), 0);
    else if (scrolls && !event.ctrlKey && !event.metaKey) this.pan(-dx, -dy);
    else this.zoom(Math.exp(-clamp(dy, -240, 240) / 400), event.offsetX, event.offsetY, scrolls ? "x" : undefined);
  }
}
