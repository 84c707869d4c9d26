/** Numbers in the order of their keys, the least first. */

export class Heap {
  private readonly keys: number[] = [];
  private readonly values: number[] = [];

  /** The least key, NaN for none. */
  get least(): number {
    return this.keys[0] ?? NaN;
  }

  push(key: number, value: number): void {
    let place = this.keys.length;
    for (let above = (place - 1) >> 1; place && (this.keys[above] as number) > key; above = (place - 1) >> 1) {
      this.move(above, place);
      place = above;
    }
    this.keys[place] = key;
    this.values[place] = value;
  }

  /** The value with the least key, which goes; undefined for none. */
  pop(): number | undefined {
    const [found] = this.values;
    const key = this.keys.pop() as number;
    const value = this.values.pop() as number;
    const { length } = this.keys;
    if (!length) return found;
    let place = 0;
    for (;;) {
      let below = 2 * place + 1;
      if (below + 1 < length && (this.keys[below + 1] as number) < (this.keys[below] as number)) below++;
      if (below >= length || (this.keys[below] as number) >= key) break;
      this.move(below, place);
      place = below;
    }
    this.keys[place] = key;
    this.values[place] = value;
    return found;
  }

  private move(from: number, to: number): void {
    this.keys[to] = this.keys[from] as number;
    this.values[to] = this.values[from] as number;
  }
}
