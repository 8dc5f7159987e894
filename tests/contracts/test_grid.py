"""The grid of cache policies: kept entries at each step, in each layer and head, and every logit, against an explicit mask.

A run is one text: a prompt of 2 to 24 tokens and a dozen more, some of them in drafts with rejected nodes. The cells have
budgets of 1 to 12 entries, or more than there are entries, 4, 2 and 1 KV heads for 4 query heads, and 20 texts each. This makes
780 runs per policy. A commit tests every tenth of these cells, `make nightly` all of them. KV compression reads the same texts
and is compared with the numbers that its entries unpack to.
A policy or a KV compression is in the grid as soon as it is registered, with these exceptions. Three sorts of policies are left
out: policies that read tokens after the prompt (`asks`: kvzip, speckv), settings that need a full cache (`needs_reference`: the
oracle of h2o), and policies that read a middle from one distance (lm_infinite). The reference has no passes and no distances of
its own, so each of these is compared with maps in its own test. Quest is in the grid, but it reads at least three pages of 16,
and these texts are shorter. So this test shows that everything stays, and its own test shows what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
import toys
from bare import Beside, Evidence, Rule
from masked import Whole
from sizes import sizes
from torch import Tensor
from voted import sharp

from decodescope.engine.core.component import build, registry
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.values.chance import keyed_uniforms
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed

TEXTS = 20
BUDGETS = (*range(1, 13), 60)
HEADS = (4, 2, 1)
VOCAB = 61
EVERY = 10  # a commit tests one in so many cells of the grid
BLOCKS = (
    (0, 0),
    (0, 1),
    (1, 1),
    (0, 0),
    (2, 2),
    (0, 0),
    (1, 0),
    (3, 2),
)  # (accepted, rejected nodes) of each pass after a prompt


class Cell(NamedTuple):
    """One cell of the grid: as many runs as there are texts."""

    number: int
    budget: int
    heads: int

    @property
    def prompt(self) -> int:
        """The number of prompt tokens; over the cells every length from 2 to 24 occurs."""
        return 2 + self.number * 5 % 23

    @property
    def variant(self) -> int:
        """The number of a setting; both the cells of a commit and those of a night take turns."""
        return self.number + self.number // EVERY


CELLS = [Cell(i, *x) for i, x in enumerate(product(BUDGETS, HEADS))]


def cells(kind: str, name: str, every: int) -> list[Cell]:
    """The cells for a policy or a KV compression; each method gets different cells."""
    shift = list(registry(kind)).index(name)
    return [cell for cell in CELLS if (cell.number + 7 * shift) % every == 0]


def beyond(policy: CachePolicy) -> bool:
    """True if a setting reads what the reference lacks: a full cache, or a middle from one distance."""
    return policy.needs_reference or (
        policy.sink_places is not None and policy.sink_places.middle is not None
    )


def sized(name: str, budget: int, variant: int) -> CachePolicy:
    """A policy in one of its toys' settings, adjusted to about `budget` entries.

    Each knob that sets a number of kept entries gets an equal part; the last one gets the rest.
    """
    several = [x for x in toys.settings_of("policy", name) if not beyond(build("policy", name, x))]
    settings = dict(several[variant % len(several)])
    policy = build("policy", name, settings)
    entries = [p for p in type(policy).params() if p.unit == "entries"]

    def keeps(knob: str, more: int) -> int:
        with_more = build("policy", name, settings | {knob: getattr(policy, knob) + more})
        return sum(zone.entries for zone in with_more.zones if zone.entries)

    counted = [p for p in entries if keeps(p.name, 1) != keeps(p.name, 0)]
    whole = any(zone.place != "first" for zone in policy.zones)
    parts = counted if whole else entries
    for i, p in enumerate(parts):
        part = (
            budget // len(parts) if i + 1 < len(parts) else budget - budget // len(parts) * (len(parts) - 1)
        )
        settings[p.name] = int(min(max(part, p.low), p.high))
    return build("policy", name, settings)


# --- rules: what a policy keeps, from the rows alone ---


def best(worth: Tensor, held: Tensor, count: int) -> Tensor:
    """bool [B, H_kv, n]: of the entries that are `held`, the `count` of most worth; of equal ones the lower position stays."""
    order = worth.masked_fill(~held, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(held).scatter(-1, order[..., :count], True) & held


def places(held: Tensor) -> Tensor:
    return torch.arange(held.shape[2]).expand(held.shape)


def all_stays(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    return held


def newest(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    return places(held) >= seen.text - policy.window


def first_and_newest(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    first, last = (zone.entries for zone in policy.zones)
    return (places(held) < first) | (places(held) >= seen.text - last)


def heaviest(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    recent, mass = places(held) >= seen.text - policy.recent, seen.maps[layer].sum((2, 3))
    return recent | best(mass, held & ~recent, policy.heavy)


def looked_at(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    given = seen.maps[layer][:, :, :, -1].mean((1, 2))[:, None].expand(held.shape)
    return best(given, held, policy.cache_size)


def shortest(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    recent, length = places(held) >= seen.text - policy.recent, seen.whole.kv[layer][0].norm(dim=-1)
    return recent | best(-length, held & ~recent, policy.low_norm_entries)


def above_uniform(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    """Evict in bursts the entries whose attention most of the last rows found below 1 / (entries that the row saw)."""
    rows = seen.maps[layer][:, :, :, -policy.window :]
    below = (rows.mean(2) < 1 / (rows[:, :, :1] > 0).sum(-1)[:, :, 0, :, None]) & (rows[:, :, 0] > 0)
    budget = policy.pivotal_entries + policy.recent
    burst = max(1, min(int(policy.drop_share * budget), policy.pivotal_entries))
    gone = -(-max(0, int(held[0, 0].sum()) - budget) // burst) * burst
    recent = places(held) >= seen.text - policy.recent
    return recent | best(-below.sum(2).double(), held & ~recent, int((held & ~recent)[0, 0].sum()) - gone)


def voted(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    """Cut once, by the attention of the prompt's last tokens, summed over them and pooled over neighbours."""
    if not seen.prompt or seen.prompt <= policy.prompt_budget + policy.window:
        return held
    before, reach = seen.prompt - policy.window, policy.pool_radius
    votes = seen.maps[layer][:, :, :, before:, :before].sum(3)  # [B, H_kv, g, n - w]
    padded = torch.nn.functional.pad(votes, (reach, reach))
    near = [padded[..., i : i + before] for i in range(2 * reach + 1)]
    # summed in a fixed order, so that equal sums stay equal
    pooled = reduce(torch.maximum, near) if policy.pool == "max" else sum(near)
    worth = torch.nn.functional.pad(pooled.mean(2), (0, policy.window), value=torch.inf)
    return best(worth, held, policy.prompt_budget + policy.window)


def least_alike(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    recent = places(held) >= seen.text - policy.recent
    return recent | best(-likeness(seen, layer, held), held & ~recent, policy.distinct_entries)


def likeness(seen: Evidence, layer: int, held: Tensor) -> Tensor:
    """float [B, H_kv, n]: the cosine between each key and the mean direction of the keys that are `held`."""
    keys = seen.whole.keys(layer)
    directions = keys / keys.norm(dim=-1, keepdim=True)
    mean = (directions * held[..., None]).sum(2, keepdim=True) / held.sum(2)[..., None, None]
    return (directions * mean).sum(-1) / mean.norm(dim=-1)


def worth_of(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    """float [B, H_kv, n]: what entries are worth by the policy's `scorer`; those that it protects are worth most."""
    if policy.scorer == "place":
        worth = places(held).double()
    elif policy.scorer == "norm":
        worth = -seen.whole.kv[layer][0].norm(dim=-1)
    else:
        worth = -likeness(seen, layer, held)
    return worth.masked_fill(places(held) < policy.sink_tokens, torch.inf)


def came_before_cut(policy: Any, seen: Evidence) -> int | None:
    """If a cut is due after this pass: how many tokens came since the last one, or since the prompt's end; else None."""
    last, came = seen.ends[0], 0 if policy.compress_prompt else None
    for end in seen.ends[1:]:
        came = end - last if end - last >= policy.interval else None
        last = last if came is None else end
    return came


def best_at_intervals(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    if came_before_cut(policy, seen) is None:
        return held
    return best(worth_of(policy, seen, layer, held), held, policy.target_entries)


def merged_at_intervals(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    """All heads keep one set. The best victims, one for each new token, may give their values to the entries after them.

    A table says for each victim which entries these are: of those that stay the next `merge_window`.
    """
    came = came_before_cut(policy, seen)
    if came is None:
        return held
    worth = worth_of(policy, seen, layer, held).mean(1, keepdim=True).expand(held.shape)
    stays = best(worth, held, policy.target_entries)
    merged, rank = best(worth, held & ~stays, came), stays.cumsum(-1)
    beyond = rank[..., None, :] - rank[..., :, None]
    takes = merged[..., :, None] & stays[..., None, :] & (beyond > 0) & (beyond <= policy.merge_window)
    mass = seen.maps[layer][:, :, :, seen.read :].sum(3).mean(2)
    m = takes.sum(-1).clamp(min=1)
    near = (takes * mass[..., None, :]).sum(-1) / m
    # nobody looked at the entries after it: it surely merges if somebody looked at it
    p = torch.where(near > 0, (mass / near).clamp(max=1), (mass > 0).double())
    if policy.merge == "drawn":
        heads = torch.arange(held.shape[1])[:, None]
        p = (keyed_uniforms(policy.seed, torch.tensor(layer), heads, places(held)) < p).double()
    values = seen.whole.kv[layer][1]
    values += (takes * (p / m)[..., None]).transpose(2, 3) @ values
    return stays


def stand_out(rows: Tensor, after: Tensor) -> Tensor:
    """[B, H_kv, lag]: how widely the channels of each row scatter, each scaled by the range that it has in `after`."""
    low, high = after.min(2, keepdim=True).values, after.max(2, keepdim=True).values
    return ((rows - low) / (high - low)).var(-1).sqrt().exp()


def partitions_against_the_next(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    """What a partition keeps depends on it and on the next alone, so it is the same at every step."""
    stays, count = torch.ones_like(held), int(policy.kept_share * policy.lag)
    tables = seen.whole.keys(layer), seen.whole.kv[layer][1]
    for at in range(policy.sink_tokens, seen.text - 2 * policy.lag + 1, policy.lag):
        parts = [x[:, :, at : at + 2 * policy.lag].chunk(2, 2) for x in tables]
        scores = [stand_out(*part) for part in parts]
        worth = sum(x / x.sum(-1, keepdim=True) for x in scores)
        stays[..., at : at + policy.lag] = best(worth, torch.ones_like(worth, dtype=torch.bool), count)
    return stays


def turned_together(policy: Any, seen: Evidence, layer: int, held: Tensor) -> Tensor:
    """Cut once. Keys that stay are turned as if nothing had been between them: rotations before and after a turn add up."""
    if not seen.prompt:
        return held
    stays = best(worth_of(policy, seen, layer, held), held, policy.sink_tokens + policy.prompt_budget)
    if policy.turn_keys:
        gaps = (~stays).flip(-1).cumsum(-1).flip(-1)  # how many entries behind an entry have left
        keys = seen.whole.kv[layer][0]
        keys.copy_(seen.whole.turned(keys, gaps))
    return stays


# these rules work from the rows, keys and values alone; any other policy decides itself, on a cache that drops nothing
RULES: dict[str, Rule] = {
    "cam": merged_at_intervals,
    "h2o": heaviest,
    "interval_eviction": best_at_intervals,
    "keep_all": all_stays,
    "key_diff": least_alike,
    "key_norm": shortest,
    "key_rerotation": turned_together,
    "lag_kv": partitions_against_the_next,
    "lm_infinite": first_and_newest,
    "scissorhands": above_uniform,
    "snapkv": voted,
    "streaming_llm": first_and_newest,
    "tova": looked_at,
    "window": newest,
}


# --- the runs ---


def passes(cell: Cell, once: bool) -> Iterator[tuple[list[int], Tensor, list[int]]]:
    """The passes after a prompt: (index of each row's token in the text, -1 if wrong; what a row sees; accepted rows)."""
    at = 0
    for accepted, rejected in BLOCKS[:1] * once + BLOCKS[cell.number % 2 :]:
        rows, sees, path = [at], [[0]], [0]
        for i in range(max(accepted, rejected)):
            stem = list(path)
            for wrong in (
                True,
                False,
            ):  # a wrong node before the right one, so that accepted entries have to move
                if i < (rejected if wrong else accepted):
                    rows.append(-1 if wrong else at + i + 1)
                    sees.append([*stem, len(rows) - 1])
                    path += [] if wrong else [len(rows) - 1]
        visible = torch.zeros(len(rows), len(rows), dtype=torch.bool)
        for row, seen in enumerate(sees):
            visible[row, seen] = True
        yield rows, visible, path
        at += 1 + accepted


def kept(lane: Lane) -> list[list[list[list[int]]]]:
    """By layer, text and KV head the positions that a lane holds."""
    heads = lane.decoder.spec.n_kv_heads
    found = [store.positions().expand(-1, heads, -1).sort(2).values.tolist() for store in lane.cache.layers]
    return [[[[p for p in row if p >= 0] for row in rows] for rows in layer] for layer in found]


def decoder_of(cell: Cell) -> Decoder:
    # with sharper attention, weights would be 1 or 0 in float32
    return sharp(cell.number, by=0.8, n_kv_heads=cell.heads, vocab=VOCAB)


def text_of(cell: Cell) -> Tensor:
    """int64 [B, VOCAB]. No token occurs twice in a text: both of its keys would be equally long, except for rounding."""
    chance = torch.Generator().manual_seed(cell.number)
    return torch.stack([torch.randperm(VOCAB, generator=chance) for _ in range(TEXTS)])


def begin(lane: Lane, prompt: Tensor) -> Tensor:
    """Read a prompt int64 [B, n] without its last token, which enters in the first step.

    Returns the last row's logits [B, V].
    """
    at = torch.arange(prompt.shape[1]).expand(TEXTS, -1)
    logits = lane.forward(Feed(prompt, at, logits="last", band=lane.policy.band))
    lane.commit(list(range(prompt.shape[1])), compress=False)
    if lane.policy.banded:
        lane.policy.compress(lane.cache)  # as after each chunk
    return logits[:, -1]


def steps(lane: Lane, cell: Cell, text: Tensor) -> Iterator[tuple[Tensor, Tensor, list[int], Tensor]]:
    """Let a lane verify and commit the passes after a prompt: (tokens, what a row sees, rows accepted, logits [B, T, V])."""
    wrong, last = (text + 5) % VOCAB, cell.prompt - 1
    for rows, visible, path in passes(cell, lane.policy.once):
        tokens = torch.stack(
            [wrong[:, last + i] if row < 0 else text[:, last + row] for i, row in enumerate(rows)], 1
        )
        places = lane.cache.length + visible.sum(1) - 1
        logits = lane.forward(Feed(tokens, places.expand(TEXTS, -1), visible[None]))
        lane.commit(path)
        yield tokens, visible, path, logits


def same(a: Tensor, b: Tensor, within: float = 1e-10) -> bool:
    return torch.allclose(a, b, rtol=0, atol=within)


def noted(policy: Any, whole: Whole, prompt: int) -> Callable[[int, Tensor], Tensor]:
    """For rows after a prompt: the layers after the two selecting layers read the entries that those score highest."""
    found = torch.empty(0)

    def read(layer: int, scores: Tensor) -> Tensor:
        nonlocal found
        seen = scores > -torch.inf
        if layer == policy.selection_layer or (
            layer == policy.reselection_layer and layer > policy.selection_layer
        ):
            found = best(scores, seen, policy.top_k)
            return seen
        return found | (whole.n + whole._depth < prompt)[:, None] if layer > policy.selection_layer else seen

    return read


# policies that do not read all kept entries in a pass; the pages of `quest` are larger than these texts
READS = {"tidal_decode": noted}
# policies whose merged values depend on attention that they add up in float32: how near their logits are
NEAR = dict.fromkeys(registry("policy"), 1e-10) | {"cam": 1e-5}


@torch.inference_mode()
def run(name: str, cell: Cell, rule: Rule | None) -> int:
    """Read a cell's texts both ways. Returns how many passes left fewer entries than tokens."""
    decoder, text, last = decoder_of(cell), text_of(cell), cell.prompt - 1
    policies = [sized(name, cell.budget, cell.variant) for _ in range(2)]
    for policy in policies:
        policy.attach_heads(decoder.heads)
        policy.begin(decoder.spec, cell.prompt)
    lane, reference = (
        Lane("target", decoder, policies[0], batch=TEXTS),
        Beside(decoder, policies[1], TEXTS, rule),
    )
    if name in READS:
        reference.whole.narrow = READS[name](policies[1], reference.whole, cell.prompt)
    # token by token, when a band takes the place of eviction
    pieces = text[:, :last].split(1 if lane.policy.banded else last, 1)
    logits = [reference.read(piece, cut=lane.policy.banded)[:, -1] for piece in pieces]
    assert same(begin(lane, text[:, :last]), logits[-1])
    cuts = 0
    for tokens, visible, path, read in steps(lane, cell, text):
        assert same(read, reference.read(tokens, visible, path), NEAR[name])
        alike = (
            kept(lane) == reference.kept()
        )  # an assertion that compares these tables takes minutes to explain
        assert alike, cell
        cuts += min(min(store.lengths) for store in lane.cache.layers) < lane.cache.length
    return cuts


@torch.inference_mode()
def run_packed(name: str, cell: Cell) -> float:
    """Read a cell's texts with KV compression, and with the unpacked numbers as a reference. Returns the largest change."""
    decoder, text, last = decoder_of(cell), text_of(cell), cell.prompt - 1
    several = []
    for settings in toys.settings_of("kv_compression", name):
        method = toys.method(kv_compression=(name, settings))
        if method.kv_compression.refuse(method, decoder.spec) is None:  # not all fit any number of KV heads
            several.append(settings)
    lane = Lane(
        "target",
        decoder,
        KeepAll(),
        kv_compression=build("kv_compression", name, several[cell.variant % len(several)]),
        batch=TEXTS,
    )
    whole, change = Whole(decoder, TEXTS), 0.0
    assert same(begin(lane, text[:, :last]), whole.fed(text[:, :last])[:, -1])
    whole.commit()
    for tokens, visible, path, read in steps(lane, cell, text):
        assert same(read, whole.fed(tokens, visible))
        whole.commit(path)
        for i, store in enumerate(lane.cache.layers):
            change = max(change, float((store.k - whole.keys(i)).abs().max()))
            whole.hold(i, store.k, store.v)
    return change


# policies that read tokens after the prompt are compared with maps in their own tests: bare stores have no passes
ALONE = [name for name, policy in registry("policy").items() if not policy.asks]


@pytest.mark.parametrize("name", ALONE)
@sizes("every", usual=EVERY, full=1)
def test_kept_sets_and_logits_are_those_of_an_explicit_mask(name: str, every: int) -> None:
    rules = dict.fromkeys(registry("policy")) | RULES
    ran = [run(name, cell, rules[name]) for cell in cells("policy", name, every)]
    assert len(ran) * TEXTS >= (60 if every == EVERY else 780)
    assert (sum(ran) > 0) is ("evict" in build("policy", name).does), "the test needs cuts"


@pytest.mark.parametrize("name", registry("kv_compression"))
@sizes("every", usual=EVERY, full=1)
def test_logits_of_packed_entries_are_those_of_the_numbers_that_they_unpack_to(name: str, every: int) -> None:
    changes = [run_packed(name, cell) for cell in cells("kv_compression", name, every)]
    assert len(changes) * TEXTS >= (60 if every == EVERY else 780)
    assert (max(changes) > 1e-6) is bool(registry("kv_compression")[name].does), (
        "the test needs numbers that change"
    )


def test_the_grid_has_its_size() -> None:
    """Runs of a nightly test, and of a commit."""
    parts = [(kind, name) for kind in ("policy", "kv_compression") for name in registry(kind)]
    due = 7 * 13 * 3 * 20
    assert len(CELLS) * TEXTS * len(parts) > 2 * due
    assert sum(len(cells(*part, EVERY)) for part in parts) * TEXTS > 2 * due / EVERY
    assert (
        {cell.prompt for cell in CELLS} == set(range(2, 25))
        and len(RULES) > 7
        and {*RULES} <= {*registry("policy")}
    )
