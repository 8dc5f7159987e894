/* The distribution at a place under another temperature and truncation, computed from the record: the
 * probabilities of its likeliest tokens, and for all others their sum and the entropy. What these do not determine
 * is given as a range, [least, most]. */

const TOP = 5; // a record has at least so many of the likeliest tokens
const SLIP = 4e-7, BLUR = 2e-5; // possible error of its sum and its entropy: they are in single precision
const LEAST = 1.5e-45; // smaller values are 0 in single precision
const surprise = (p) => (p > 0 ? -p * Math.log(p) : 0);
const total = (list) => list.reduce((sum, x) => sum + x, 0);

/** The record of a place. tops: of a step, [place, entropy in nats, [sum of the others, ...], [[token id, text, p,
 *  q], ...]]; vocab: number of tokens; cuts: whether the run removed tokens before it drew; drawn: {token, text,
 *  p} of a further known token. rows: its tokens, the likeliest first; known: how many of them are the likeliest
 *  of all; most: upper bound of the probability of any other. */
export function recorded([, entropy, [rest], shown], { vocab, cuts, drawn = null }) {
  const rows = shown.map(([token, text, p]) => ({ token, text, p })).sort((a, b) => b.p - a.p),
    known = Math.min(TOP, rows.length), most = Math.max(rows[known - 1].p, cuts ? 0 : LEAST);
  if (drawn && rows.every((row) => row.token !== drawn.token)) {
    rows.push(drawn);
    rest = Math.max(0, rest - drawn.p);
  }
  const count = Math.max(0, vocab - rows.length), spread = entropy - total(rows.map(({ p }) => surprise(p)));
  return { rows, known, most, count, cuts, sum: Math.min(rest, count * most), spread: Math.max(0, spread) };
}

/** The sum of (p / top) ** power over the tokens that are not listed. With their sum S and mean surprise h, it is
 *  least if some are equally likely and the rest have nothing. It is most if some are as likely as they may be and
 *  the rest equally likely: 1, p, p ln p and p ** power are a Chebyshev system, which has its extremes there. */
export function others({ count, most, sum, spread }, power, top) {
  const [low, high] = [Math.max(0, sum - SLIP), Math.min(sum + SLIP, count * most)];
  if (!count || high <= 0) return [0, 0];
  if (power === 1) return [sum / top, sum / top];
  const flat = Math.log(count / high), sharp = -Math.log(Math.min(most, high));
  const within = (h) => Math.min(Math.max(h, sharp), Math.max(sharp, flat));
  const h = [within((spread - BLUR) / high), low > 0 ? within((spread + BLUR) / low) : Math.max(sharp, flat)];
  const even = (S, mean) => (S > 0 ? Math.exp(Math.log(S) - (power - 1) * mean - power * Math.log(top)) : 0);
  return [even(low, power < 1 ? h[0] : h[1]), uneven(high, power < 1 ? h[1] : h[0])];

  /** j tokens at `most`, the other count - j equally likely, so that the mean surprise is `mean`. */
  function uneven(S, mean) {
    let [a, b] = [0, S / count];
    const at = (x) => (most > x ? (S - count * x) / (most - x) : 0);
    for (let k = 0; k < 80; k++) {
      const x = (a + b) / 2, j = at(x);
      if (j * surprise(most) + (count - j) * surprise(x) < mean * S) a = x;
      else b = x;
    }
    const j = at(b);
    return j * (most / top) ** power + (count - j) * (b / top) ** power;
  }
}

/** The distribution of `base` (as `recorded` gives it) when its logits are divided by `temperature` instead of
 *  `heat`; then the `k` likeliest tokens stay, of these the shortest list that holds the mass `p`, of these all with
 *  at least `share` of the likeliest one's probability. Each row gets a range, and so do all others together.
 *  @param base
 *  @param {{temperature?: number, k?: number, p?: number, share?: number}} setting
 *  @param heat */
export function reshaped(base, { temperature, k = Infinity, p = 1, share = 0 }, heat) {
  const { rows, known, most, cuts } = base, top = rows[0].p;
  if (temperature === 0) return { rows: rows.map((_, i) => (i ? [0, 0] : [1, 1])), rest: [0, 0] };
  const power = heat / temperature;
  let weights = rows.map((row) => {
    const w = (row.p / top) ** power;
    return row.p > 0 ? [w, w] : [0, cuts ? 0 : (LEAST / top) ** power];
  });
  let rest = others(base, power, top);
  if (k <= known) {
    weights = weights.map((w, i) => (i < k ? w : [0, 0]));
    rest = [0, 0];
  }
  if (p < 1) [weights, rest] = nucleus(weights, rest, known, p);
  if (share > 0) {
    weights = weights.map((w, i) => (i && w[1] < share ? [0, 0] : w));
    rest = (most / top) ** power < share ? [0, 0] : [0, rest[1]];
  }
  const all = [...weights, rest], [least, largest] = [0, 1].map((end) => total(all.map((w) => w[end])));
  /** @param {number[]} range */
  const part = ([a, b]) => [a > 0 ? a / (largest - b + a) : 0, b > 0 ? b / (least - a + b) : 0];
  return { rows: weights.map(part), rest: part(rest) };
}

/** The tokens that top-p leaves: a token stays while those before it hold less than p of the mass; the first
 *  `known` are in order and before all others. */
function nucleus(weights, rest, known, p) {
  const all = [...weights, rest], [least, largest] = [0, 1].map((end) => total(all.map((w) => w[end])));
  const first = [0, 1].map((end) => total(weights.slice(0, known).map((w) => w[end])));
  const kept = weights.map((w, i) => {
    const ahead = i < known ? weights.slice(0, i) : weights.filter((x, j) => j < known || x[0] > w[1]);
    const behind = weights.filter((x, j) => j >= known && x[1] < w[0]), before = total(ahead.map((x) => x[0]));
    const from = before / largest,
      to = i < known ? total(ahead.map((x) => x[1])) / least : 1 - (w[0] + total(behind.map((x) => x[0]))) / largest;
    return i === 0 || to < p ? w : from >= p ? [0, 0] : [0, w[1]];
  });
  if (first[0] / largest >= p) return [kept, [0, 0]];
  return [kept, [Math.max(0, Math.min(rest[0], p * least - total(kept.map((w) => w[1])))), rest[1]]];
}
