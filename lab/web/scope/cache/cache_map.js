/* Cache map: when each entry of the target's cache was evicted. */

const KEPT = 0x7fffffff;
/** What becomes of entries that leave: a policy evicts them; if the policy keeps everything, the strategy frees
 *  them. */
export const leaveWord = ({ parts }) =>
  parts?.policy?.does?.every((x) => x !== "evict" && x !== "merge") ? "freed" : "evicted";

/** When each entry of the target's cache was evicted: a row is a layer and KV head, a column a position. Evicted
 *  entries never come back, so one number per entry answers for every step: kept at step i if it is above i. went:
 *  the word for those that left. late(row, position): the step from which an entry is there, and cut: the rows without
 *  a head in the model; set by entries.js where entries are missing. */
export class CacheMap {
  room = 256;
  upto = -1;
  untold = false;
  wants = null;
  lengths = [];
  first = Infinity;
  late = null;
  cut = null;

  constructor(layers, heads, went) {
    this.layers = layers;
    this.heads = heads;
    this.went = went;
    this.rows = layers * heads;
    this.at = new Int32Array(this.rows * this.room).fill(KEPT);
  }

  /** Take in the new steps, as far as there is no hole; `wants` is then the step that is missing. */
  follow(steps) {
    for (this.wants = null; this.upto + 1 < steps.length; this.upto++) {
      const i = this.upto + 1, change = steps[i]?.kv.find((x) => x.lane === "target");
      if (!steps[i] || change?.lost) return void (this.wants = i);
      if (!change) {
        this.lengths[i] = this.lengths[i - 1] || 0;
        continue;
      }
      this.lengths[i] = change.read;
      while (this.room < change.read) this.grow();
      if (change.prompt) this.enter(change.prompt, -1);
      this.enter(change, i);
      if (change.untold || change.prompt?.untold) this.untold = true;
    }
  }

  enter({ gone, out }, i) {
    const note = (row, runs) => {
      for (const run of runs) {
        const [from, to] = Array.isArray(run) ? run : [run, run];
        for (let p = from; p <= to && p < this.room; p++) this.at[row * this.room + p] = i;
      }
    };
    if (gone || out) this.first = Math.min(this.first, i);
    for (let row = 0; row < this.rows; row++) {
      if (gone) note(row, gone);
      if (out?.[row]) note(row, out[row]);
    }
  }

  grow() {
    const wider = new Int32Array(this.rows * this.room * 2).fill(KEPT);
    for (let row = 0; row < this.rows; row++)
      wider.set(this.at.subarray(row * this.room, (row + 1) * this.room), row * this.room * 2);
    this.at = wider;
    this.room *= 2;
  }

  /** Positions that the cache has read up to step i. */
  length = (i) => this.lengths[i] || 0;
  /** When the entry of a row left; -2 if it is not there at step i. */
  left = (row, position, i) => (this.late?.(row, position) > i ? -2 : this.at[row * this.room + position]);
  kept = (row, position, i) => position < this.length(i) && this.left(row, position, i) > i;
  /** Whether anything is missing at step i. */
  any = (i) => this.first <= i || !!this.late;

  /** How many entries the rows hold, in words. */
  summary(i) {
    let least = Infinity, most = 0;
    if (!this.any(i)) return `${this.length(i)} kept in each row`;
    for (let row = 0; row < this.rows; row++) {
      let held = 0;
      if (this.cut?.has(row)) continue;
      for (let p = 0, end = this.length(i); p < end; p++) if (this.left(row, p, i) > i) held++;
      least = Math.min(least, held);
      most = Math.max(most, held);
    }
    return least === most ? `${least} kept in each row` : `${least} to ${most} kept in a row`;
  }
}
