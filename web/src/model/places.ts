/** From taskIds to places, without making a text of each: a graph has three times as many references as tasks. */

const ID_CHARS = 22;
const QUOTE = 34;
const DIGITS = new Uint8Array(128);
[..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"].forEach((each, digit) => {
  DIGITS[each.charCodeAt(0)] = digit;
});

/** A hash table with open addresses. An id is three numbers, of 8, 8 and 6 of its characters. */
export class Places {
  private readonly first: Float64Array;
  private readonly second: Float64Array;
  private readonly third: Float64Array;
  /** One more than the place; 0 for a free address. */
  private readonly found: Uint32Array;
  private readonly mask: number;
  private readonly others = new Map<string, number>();
  private one = 0;
  private two = 0;
  private three = 0;

  constructor(ids: readonly string[]) {
    const size = 1 << Math.ceil(Math.log2(Math.max(2, ids.length * 2)));
    this.mask = size - 1;
    this.first = new Float64Array(size);
    this.second = new Float64Array(size);
    this.third = new Float64Array(size);
    this.found = new Uint32Array(size);
    ids.forEach((id, place) => {
      if (!isId(id)) return this.others.set(id, place);
      const address = this.address(id, 0);
      this.first[address] = this.one;
      this.second[address] = this.two;
      this.third[address] = this.three;
      return (this.found[address] = place + 1);
    });
  }

  /** The place of an id, -1 for none. */
  of(id: string): number {
    return isId(id) ? this.at(id, 0) : (this.others.get(id) ?? -1);
  }

  /** The place of the id that stands in a text from there on, -1 for none. */
  private at(text: string, from: number): number {
    return (this.found[this.address(text, from)] as number) - 1;
  }

  /**
   * Calls back with the place of each id in a list of references, as rows have it (`["id","join:…"]`), and with what is
   * no id of a task. What is damaged, or lists nothing, calls nothing.
   */
  each(list: string, task: (place: number) => void, other: (reference: string) => void): void {
    let from = 2;
    while (list.charCodeAt(from - 1) === QUOTE) {
      const end = list.indexOf('"', from);
      if (end < from) return;
      const place = end - from === ID_CHARS ? this.at(list, from) : -1;
      if (place >= 0) task(place);
      else other(list.slice(from, end));
      from = end + 3;
    }
  }

  private address(text: string, from: number): number {
    let hash = 0;
    let part = 0;
    for (let place = 0; place < ID_CHARS; place++) {
      const digit = DIGITS[text.charCodeAt(from + place) & 127] as number;
      hash = (Math.imul(hash, 31) + digit) | 0;
      part = part * 64 + digit;
      if (place === 7) [this.one, part] = [part, 0];
      else if (place === 15) [this.two, part] = [part, 0];
    }
    this.three = part;
    const { first, second, third, found, mask, one, two } = this;
    let address = (hash ^ (hash >>> 15)) & mask;
    while (found[address] && !(first[address] === one && second[address] === two && third[address] === part)) {
      address = (address + 1) & mask;
    }
    return address;
  }
}

const isId = (text: string): boolean => /^[A-Za-z0-9_-]{22}$/.test(text);
