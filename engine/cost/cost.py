"""What a forward pass costs: its operators, from the model's shape and the pass's sizes, and their sum. No torch.

`pass_ops` says which operators run; `operators.py` says what each costs; `speedup.py` says when drafting pays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypedDict

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.core.tree import depths
from decodescope.engine.trace.details.looks import Look
from decodescope.engine.trace.records.events import DraftTree, Pass
from decodescope.engine.trace.records.phases import DECIDES, READS, STATES

from .operators import SCORES, AttentionScores, Cost, Op, OperatorPrices, byte_count, grouped_bits, prices_of
from .pass_shape import Held, PassShape
from .speedup import expected_tokens, expected_tree_tokens, flop_factor, measured_speedup, speedup

__all__ = [
    "DTYPE_BITS",
    "Cost",
    "Op",
    "PassShape",
    "cost_of",
    "exit_test",
    "expected_tokens",
    "expected_tree_tokens",
    "flop_factor",
    "grouped_bits",
    "look_ops",
    "measured_speedup",
    "ops_of",
    "pass_cost",
    "pass_ops",
    "speedup",
    "tree_pairs",
]
DTYPE_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16, "int8": 8, "int4": 4}
# of a shape: what all but the scores of a pass follows from
SIZES = ("batch", "weight_bits", "act_bits", "kv_bits", "dequant", "logits", "head_bits")


def pass_ops(spec: ModelSpec, shape: PassShape) -> list[Op]:
    """Every operator of one pass, in order of execution. Raises ValueError for a shape that the model cannot have."""
    tokens = shape.tokens
    into = shape.entering
    layers = range(spec.n_layers)
    _check_at_least_one(tokens, shape.batch)
    sub_layers = _SubLayers.of(spec, shape)
    run = _each_layer("rows", tokens if shape.rows is None else shape.rows, spec)
    ffn_run = run if shape.ffn_rows is None else shape.ffn_rows
    prices = {n: _operator_prices(spec, n, shape) for n in {*run, *ffn_run, tokens}}
    open_q = _each_layer("heads", shape.heads or [*map(spec.heads_at, layers)], spec)
    open_kv = _each_layer("kv_heads", shape.kv_heads or [*map(spec.kv_at, layers)], spec)
    entries, ops = _each_layer("held", shape.held, spec), list[Op]()
    mask = [None] * len(layers) if shape.pairs is None else _each_layer("pairs", shape.pairs, spec)
    for i in layers:
        if i in sub_layers.attn:
            entering = tokens if into is None else into[i]
            scored, read = _scored_and_read(spec, i, run[i], entries[i], entering, mask[i])
            scores = AttentionScores(
                i, open_q[i], open_kv[i], scored, read, shape.fused, shape.read_bits, shape.again
            )
            pages = shape.bounds[i] if shape.bounds else 0
            ops += prices[run[i]].attention(scores, None if into is None else entering, pages)
        else:
            ops += prices[tokens].gap(i, open_kv[i], i in sub_layers.filled, i in sub_layers.copied)
        if i in sub_layers.ffn:
            ops += prices[ffn_run[i]].ffn(i)
    if shape.logits:
        ops.append(
            prices[tokens].linear(
                "lm_head", None, spec.d_model, spec.vocab, rows=shape.logits, weight_bits=shape.head_bits
            )
        )
    return ops


def _operator_prices(spec: ModelSpec, rows: int, shape: PassShape) -> OperatorPrices:
    """The prices of operators on so many rows."""
    return prices_of(spec, rows, shape.batch, shape.weight_bits, shape.act_bits, shape.kv_bits, shape.dequant)


def _check_at_least_one(tokens: int, batch: int) -> None:
    if tokens < 1 or batch < 1:
        raise ValueError(
            f"A pass feeds at least one row of one sequence; tokens = {tokens}, batch = {batch}."
        )


class _SubLayers(NamedTuple):
    """The layers of a pass by what runs there.

    attn and ffn: layers whose attention or feed-forward block runs; filled: whose keys and values are computed from an exit
    state; copied: whose keys and values are copied from below.
    """

    attn: set[int]
    ffn: set[int]
    filled: set[int]
    copied: set[int]

    @classmethod
    def of(cls, spec: ModelSpec, shape: PassShape) -> _SubLayers:
        """Those of a pass; of a model that was cut not all layers have both blocks."""
        layers = range(spec.n_layers)
        runs, blocks = (_select_layers(which, layers) for which in (shape.attn_layers, shape.ffn_layers))
        rest = [i for i in layers if i not in runs]
        filled, copied = (_select_layers(x, rest) - runs for x in (shape.propagated, shape.copied))
        heads, columns = ({i for i in layers if at(i)} for at in (spec.kv_at, spec.ff_at))
        return cls(runs & heads, blocks & columns, filled & heads, copied & heads)


def pass_cost(spec: ModelSpec, shape: PassShape) -> Cost:
    """The sum of `pass_ops`.

    If the scores of all layers cost the same, they are priced once and the price of everything else is cached.
    """
    held, pairs = shape.held, shape.pairs
    apart = shape.differs_by_layer or spec.windows or spec.groups
    if apart or not isinstance(held, int) or not isinstance(pairs, int | None):
        return Cost.of(pass_ops(spec, shape))
    rest, price = _cost_without_scores(spec, shape.tokens, _shape_sizes(shape))
    scored, read = _scored_and_read(spec, 0, shape.tokens, held, shape.tokens, pairs)
    heads, layers = (spec.n_heads, spec.n_kv_heads), spec.n_layers
    one = price.scores(AttentionScores(0, *heads, scored, read, shape.fused, shape.read_bits, shape.again))
    return replace(
        rest,
        flops=rest.flops + layers * one.flops,
        kv_read_bytes=rest.kv_read_bytes + layers * one.kv_read_bytes,
        act_bytes=rest.act_bytes + layers * one.act_bytes,
        launches=rest.launches + layers,
    )


def _shape_sizes(shape: PassShape) -> tuple[Any, ...]:
    """The SIZES of a shape."""
    bits = shape.weight_bits, shape.act_bits, shape.kv_bits
    return shape.batch, *bits, shape.dequant, shape.logits, shape.head_bits


@lru_cache(maxsize=256)
def _cost_without_scores(spec: ModelSpec, tokens: int, sizes: tuple[Any, ...]) -> tuple[Cost, OperatorPrices]:
    """The cost of a pass of so many rows without its scores, and the prices of its operators.

    The cost is that of all layers. sizes: SIZES
    """
    shape = PassShape(tokens, 0, **dict(zip(SIZES, sizes, strict=True)))
    beside = Cost.of(op for op in pass_ops(spec, shape) if op.name != SCORES)
    return beside, _operator_prices(spec, tokens, shape)


def exit_test(
    spec: ModelSpec,
    kind: Literal["head", "classifier", "cosine", "imitation", "router"] = "head",
    *,
    layer: int | None = None,
    rows: int = 1,
    classes: int = 2,
    inner: int = 0,
    weight_bits: float = 16,
    act_bits: float = 16,
) -> Op:
    """The price of an exit test.

    The tests are the whole head, a linear classifier on the hidden state (`classes` outputs), a router (one output), the cosine
    of two states (3 h FLOPs), or a net h -> `inner` -> h that imitates states to come and a classifier on twice h.
    """
    h = spec.d_model
    if kind == "cosine":
        return Op("exit_test", layer, 3 * h * rows, act_bytes=byte_count(2 * h * rows, act_bits))
    price = OperatorPrices(spec, rows, 1, weight_bits, act_bits, act_bits, dequant=False)
    if kind == "imitation":  # its three products, as if they were one of the same size
        return price.linear("exit_test", layer, h, 2 * inner + 2 * classes)
    if kind == "head":
        return price.linear("exit_test", layer, h, spec.vocab, weight_bits=spec.head_bits(weight_bits))
    return price.linear("exit_test", layer, h, 1 if kind == "router" else classes)


def tree_pairs(
    parents: Sequence[int], held: int, tokens: int | None = None, window: int | None = None
) -> int:
    """True mask entries when a tree is verified: `parents[i]` is node i's parent, -1 the root.

    The pass feeds `tokens` rows on `held` entries: a chain that ends in the root, then the nodes. None: root and nodes.
    window: entries that a row sees at most, itself included
    """
    nodes = len(parents)
    chain = (nodes + 1 if tokens is None else tokens) - nodes
    if window is not None:
        seen = [*range(held + 1, held + chain + 1), *(held + chain + deep for deep in depths(parents))]
        return sum(min(n, window) for n in seen)
    return chain * held + chain * (chain + 1) // 2 + nodes * (held + chain) + _total_depth(tuple(parents))


@lru_cache(maxsize=64)
def _total_depth(parents: tuple[int, ...]) -> int:
    """Depths of all nodes of a tree below its root, summed; every layer of a pass asks for the same one."""
    return sum(depths(parents))


def ops_of(
    spec: ModelSpec,
    record: Pass,
    *,
    draft: DraftTree | None = None,
    bits: float = 16,
    read_bits: float | None = None,
) -> list[Op]:
    """The operators of a recorded pass.

    draft: the step's tree, for a verify pass: its true mask entries are charged instead of a causal chain's
    bits:  of weights, activations and cache (`DTYPE_BITS[header.dtype]`); read_bits: average bits of the entries that are read

    If a pass did not read all entries that were held, what it read is charged; each of its own rows counts against all of that.
    """
    shape = _shape_of(spec, record, draft, bits, read_bits)
    return [*pass_ops(spec, shape), *_exit_ops(spec, record, bits)]


def cost_of(
    spec: ModelSpec,
    record: Pass,
    *,
    draft: DraftTree | None = None,
    bits: float = 16,
    read_bits: float | None = None,
) -> Cost:
    """The sum of `ops_of`, which says what the options mean."""
    cost = pass_cost(spec, _shape_of(spec, record, draft, bits, read_bits))
    asked = _exit_ops(spec, record, bits)
    return cost + Cost.of(asked) if asked else cost


def _shape_of(
    spec: ModelSpec, record: Pass, draft: DraftTree | None, bits: float, read_bits: float | None
) -> PassShape:
    """The shape with which `pass_ops` makes the operators of a recorded pass."""
    entries = record.held if record.read is None else record.read
    entries = _add_entries(_add_entries(entries, record.aside or 0), record.pending or 0)
    along = (
        None if not record.joined else [record.tokens + record.joined_tokens(i) for i in range(spec.n_layers)]
    )
    tree = record.rows is None and record.tokens  # rows that enter layer by layer are a chain's
    own: _RowShape = {"rows": record.rows or along}
    if draft is not None and record.phase in DECIDES and tree > len(draft.parents):
        own["pairs"] = _tree_mask_entries(spec, entries, draft.parents, along or record.tokens)
    if record.routed is not None:
        own = _row_shape(spec, record, entries, None if draft is None or not tree else draft.parents)
    return PassShape(
        record.tokens,
        entries,
        logits=_logits_of(record),
        batch=record.batch,
        attn_layers=record.attn,
        ffn_layers=record.ffn,
        propagated=record.propagated or 0,
        copied=record.copied or 0,
        again=_shared_entries(record),
        weight_bits=bits,
        act_bits=bits,
        kv_bits=bits,
        read_bits=read_bits,
        bounds=record.bounds,
        **own,
    )


def _logits_of(record: Pass) -> int:
    """Rows that reached the head: as recorded, else the last one where a prompt is read, all otherwise.

    Where a context looks at the prompt by some layers alone, none reaches it.
    """
    if record.logits is not None:
        return record.logits
    if record.phase in STATES and record.attn is not None:
        return 0
    return 1 if record.phase in READS else record.tokens


def _tree_mask_entries(
    spec: ModelSpec, held: Held, parents: Sequence[int], rows: int | list[int]
) -> int | list[int | Fraction]:
    """True mask entries of a pass that checks a tree: one number where all layers hold and run as much, else one a layer."""
    if isinstance(held, int) and isinstance(rows, int) and not spec.windows:
        return tree_pairs(parents, held, rows)
    each, fed = _each_layer("held", held, spec), _each_layer("rows", rows, spec)
    seen = (
        [(tree_pairs(parents, n, fed[i], spec.window(i)), 0) for n in _entries_by_head(h)]
        for i, h in enumerate(each)
    )
    return [_mean_over_heads(x)[0] for x in seen]


def _exit_ops(spec: ModelSpec, record: Pass, bits: float) -> list[Op]:
    """The price of a recorded pass's exit tests, and of the maps of trained exits."""
    return [op for more in (_exit_test_ops, _exit_map_ops) for op in more(spec, record, bits)]


class _RowShape(TypedDict, total=False):
    """The fields of a shape that follow from the rows that ran."""

    rows: Sequence[int] | None
    ffn_rows: Sequence[int]
    entering: Sequence[int]
    pairs: int | Sequence[int | Fraction]


def _row_shape(spec: ModelSpec, record: Pass, held: Held, parents: Sequence[int] | None) -> _RowShape:
    """What each layer ran and read in a pass where some rows left out layers.

    parents: of the tree that the pass checked.
    """
    layers = range(spec.n_layers)
    attn, ffn = ([record.running_rows(i, block) for i in layers] for block in ("attn", "ffn"))
    entering = [record.tokens if record.gap == "propagate" else len(rows) for rows in attn]
    each = _each_layer("held", held, spec)
    pairs = [
        _mean_over_heads(
            [(_mask_entries(spec, i, rows, n, record, parents), 0) for n in _entries_by_head(h)]
        )[0]
        for i, rows, h in zip(layers, attn, each, strict=True)
    ]
    return {"rows": [*map(len, attn)], "ffn_rows": [*map(len, ffn)], "entering": entering, "pairs": pairs}


def _mask_entries(
    spec: ModelSpec, layer: int, rows: list[int], held: int, record: Pass, parents: Sequence[int] | None
) -> int:
    """True entries of the mask for those `rows` of a pass that run the attention of a layer over `held` entries."""
    others = set(range(record.tokens) if record.gap == "propagate" else rows)  # what leaves entries
    if parents is not None and record.tokens == len(parents) + 1 and parents:
        seen = (held + len(others.intersection(_path_to_root(row, parents))) for row in rows)
        return sum(min(n, spec.window(layer) or n) for n in seen)
    if not spec.causal:
        return len(rows) * (held + len(others))
    return sum(_pairs_and_entries(spec, layer, 1, held + sum(x < row for x in others))[0] for row in rows)


def _path_to_root(row: int, parents: Sequence[int]) -> list[int]:
    """The rows from `row` of a tree's pass to its root, row 0."""
    line = [row]
    while line[-1]:
        line.append(parents[line[-1] - 1] + 1)
    return line


def _exit_test_ops(spec: ModelSpec, record: Pass, bits: float) -> list[Op]:
    """The price of a pass's exit tests.

    The pass answers with the logits of the test by which it left, so these cost nothing more.
    """
    asked = record.tests or []
    if record.asks == "router":  # in front of both blocks of every layer
        asked = [i for i in range(spec.n_layers) for _ in range(2)]
    if record.asks == "head" and asked and asked[-1] not in _select_layers(record.attn, range(spec.n_layers)):
        asked = asked[:-1]
    if not asked or not record.asks:
        return []
    # these alone are asked
    places = record.tokens if record.logits is None or record.phase != "canvas" else record.logits
    rows, inner = places * record.batch, record.inner or 0
    bare = partial(
        exit_test,
        spec,
        record.asks,
        rows=rows,
        classes=1,
        inner=inner,
        weight_bits=bits,
        act_bits=bits,
    )
    return [bare(layer=i) for i in asked]


def _exit_map_ops(spec: ModelSpec, record: Pass, bits: float) -> list[Op]:
    """The price of the maps of trained exits: one for each test by the head, else one for the state that a pass left with."""
    asked = record.tests or []
    if not record.rank or not asked:
        return []
    if record.asks != "head":
        asked = [i for i in asked[-1:] if i not in _select_layers(record.attn, range(spec.n_layers))]
    price = OperatorPrices(spec, record.tokens, record.batch, bits, bits, bits, dequant=False)
    return [op for i in asked for op in price.exit_map(i, record.rank)]


def look_ops(spec: ModelSpec, look: Look, bits: float = 16) -> list[Op]:
    """The operators that a router runs on a model's distributions or states.

    These are a softmax over the vocabulary, priced like attention's; with two more operations an entry its entropy; or the maps
    of a net, with five operations an activation between two of them.
    """
    if look.of != "net":
        entries = spec.vocab * look.rows
        return [
            Op(
                f"router_{look.of}",
                None,
                (5 if look.of == "law" else 7) * entries,
                act_bytes=byte_count(entries, bits),
            )
        ]
    price = OperatorPrices(spec, look.rows, 1, bits, bits, bits, dequant=False)
    maps = [price.linear("router_net", None, i, o) for i, o in pairwise(look.widths)]
    between = [
        Op("router_act", None, 5 * w * look.rows, act_bytes=byte_count(2 * w * look.rows, bits))
        for w in look.widths[1:-1]
    ]
    return [*maps, *between]


def _add_entries(held: Any, count: int | Sequence[int]) -> Any:
    """Add this many entries in each layer and head; count: one number, or by layer."""
    if not count:
        return held
    if isinstance(count, Sequence):
        each = held if isinstance(held, Sequence) else [held] * len(count)
        return [_add_entries(x, n) for x, n in zip(each, count, strict=True)]
    return [_add_entries(x, count) for x in held] if isinstance(held, Sequence) else held + count


def _select_layers(which: Collection[int] | int | None, among: Sequence[int]) -> set[int]:
    if which is None:
        return set(among)
    return set(among[:which]) if isinstance(which, int) else set(which)


def _shared_entries(record: Pass) -> int:
    """How many entries of all sequences another sequence has loaded."""
    if record.distinct is not None and isinstance(record.held, int):
        return record.batch * record.held - record.distinct
    return (record.shared or 0) * (record.batch - 1)


def _entries_by_head(entries: int | Sequence[int]) -> Sequence[int]:
    """Entries of a layer by KV head; a single number holds for all heads."""
    return [entries] if isinstance(entries, int) else entries


def _scored_and_read(
    spec: ModelSpec, layer: int, n: int, held: int | Sequence[int], into: int, pairs: int | Fraction | None
) -> tuple[int | Fraction, int | Fraction]:
    """Query-key pairs of n rows that run a layer, and entries that they read, for one KV head on average.

    They read from the `held` entries and from those of the `into` rows that leave entries. pairs: where they are known.
    """
    scored, read = _mean_over_heads(
        [_pairs_and_entries(spec, layer, n, h + max(into - n, 0)) for h in _entries_by_head(held)]
    )
    return scored if pairs is None else pairs, read


def _mean_over_heads(each: Sequence[tuple[int, int]]) -> tuple[int | Fraction, int | Fraction]:
    """Pairs and entries read of one KV head, on average: the average times the number of heads is whole."""
    if len(each) == 1:
        return each[0]
    pairs, read = zip(*each, strict=True)
    return Fraction(sum(pairs), len(each)), Fraction(sum(read), len(each))


def _each_layer(name: str, value: Any, spec: ModelSpec) -> Sequence[Any]:
    each: Sequence[Any] = [value] * spec.n_layers if isinstance(value, int) else value
    if len(each) != spec.n_layers:
        raise ValueError(
            f"{name} has {len(each)} entries; {spec.name} has {spec.n_layers} layers. Give one for each."
        )
    return each


def _pairs_and_entries(spec: ModelSpec, layer: int, n: int, held: int) -> tuple[int, int]:
    """Query-key pairs of n new rows on `held` entries under the model's own mask, and entries read."""
    window = spec.window(layer)
    if not spec.causal:
        return n * (held + n), held + n
    if window is None:
        return n * held + n * (n + 1) // 2, held + n
    short = min(max(window - held, 0), n)  # rows that still see everything before them
    return short * held + short * (short + 1) // 2 + (n - short) * window, min(held + n, window + n - 1)
