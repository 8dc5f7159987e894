"""What a forward pass costs: its operators, from the model's shape and the pass's sizes, and their sum. No torch.

`pass_ops` says which operators run; `operators.py` says what each costs; `speedup.py` says when drafting pays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from inspect import signature
from itertools import pairwise
from typing import Any, Literal, TypedDict, Unpack

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.core.tree import depths
from decodescope.engine.trace.details.looked import Look
from decodescope.engine.trace.records.events import DraftTree, Pass
from decodescope.engine.trace.records.phases import DECIDES, READS, STATES

from .operators import SCORES, Cost, Op, Prices, grouped_bits, prices_of, size
from .speedup import expected_tokens, expected_tree_tokens, flop_factor, measured_speedup, speedup

__all__ = [
    "DTYPE_BITS",
    "Cost",
    "Op",
    "PassOptions",
    "RecordOptions",
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


Held = int | Sequence[int] | Sequence[Sequence[int]]  # entries: one number, by layer, or by layer and KV head


# of those of a pass: what can make one layer cost what another does not, and what all but its scores follows from
APART = ("attn_layers", "ffn_layers", "heads", "kv_heads", "bounds", "rows", "ffn_rows", "entering")
PRICED = (
    "batch",
    "weight_bits",
    "act_bits",
    "kv_bits",
    "dequant",
)  # sizes on which the price of every operator hangs
SIZES = (*PRICED, "logits", "head_bits")


class PassOptions(TypedDict, total=False):
    """The keywords of `pass_ops`, for the functions that hand them on."""

    logits: int
    batch: int
    pairs: int | Sequence[int | Fraction] | None
    attn_layers: Collection[int] | int | None
    ffn_layers: Collection[int] | int | None
    propagated: Collection[int] | int
    copied: Collection[int] | int
    again: int
    heads: Sequence[int] | None
    kv_heads: Sequence[int] | None
    weight_bits: float
    head_bits: float | None
    act_bits: float
    kv_bits: float
    read_bits: float | None
    dequant: bool
    fused: bool
    bounds: Sequence[int] | None
    rows: Sequence[int] | None
    ffn_rows: Sequence[int] | None
    entering: Sequence[int] | None


def pass_ops(  # noqa: PLR0913
    spec: ModelSpec,
    tokens: int,
    held: Held,
    *,
    logits: int = 1,
    batch: int = 1,
    pairs: int | Sequence[int | Fraction] | None = None,
    attn_layers: Collection[int] | int | None = None,
    ffn_layers: Collection[int] | int | None = None,
    propagated: Collection[int] | int = 0,
    copied: Collection[int] | int = 0,
    again: int = 0,
    heads: Sequence[int] | None = None,
    kv_heads: Sequence[int] | None = None,
    weight_bits: float = 16,
    head_bits: float | None = None,
    act_bits: float = 16,
    kv_bits: float = 16,
    read_bits: float | None = None,
    dequant: bool = False,
    fused: bool = True,
    bounds: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    ffn_rows: Sequence[int] | None = None,
    entering: Sequence[int] | None = None,
) -> list[Op]:
    """Every operator of one pass that feeds `tokens` rows per sequence on `held` entries, in order of execution.

    held:    entries before the pass, one number, one per layer or one per layer and KV head (policies, exits)
    logits:  rows per sequence that reach the head; 0: no head;  again: entries that another sequence has loaded
    pairs:   true entries of the attention mask per sequence, one number or one per layer; None: those of the model's own mask
    attn_layers, ffn_layers: sub-layers that run, as layers or as a count from the first; None: all
    propagated, copied: layers without attention whose keys and values are made of an exit state, or copied from below
    heads, kv_heads: open query and KV heads per layer; None: all that the model has there
    weight_bits: bits per weight, scales included, where the model tells none; head_bits: the head's, None: the same
    kv_bits: bits per number of a new entry;  read_bits: per number of those that are read, on average; None: the same
    dequant: charge two operations per weight for unpacking;  bounds: by layer, pages whose bounds are read first
    rows:    by layer, how many run it, the last of them: of fewer the others are entries before them (None: all);  ffn_rows:
             of its feed-forward block, if not as many;  entering: how many leave entries, if others than those that run
    """
    _at_least_one(tokens, batch)
    layers, attn, ffn, filled, twice = _sub_layers(spec, attn_layers, ffn_layers, propagated, copied)
    run = _each_layer("rows", tokens if rows is None else rows, spec)
    ffn_run, into = (
        run if ffn_rows is None else ffn_rows,
        [None] * len(layers) if entering is None else entering,
    )
    prices = {
        n: prices_of(spec, n, batch, weight_bits, act_bits, kv_bits, dequant)
        for n in {*run, *ffn_run, tokens}
    }
    open_q = _each_layer("heads", heads or [*map(spec.heads_at, layers)], spec)
    open_kv = _each_layer("kv_heads", kv_heads or [*map(spec.kv_at, layers)], spec)
    entries, ops = _each_layer("held", held, spec), list[Op]()
    mask = [None] * len(layers) if pairs is None else _each_layer("pairs", pairs, spec)
    for i in layers:
        if i in attn:
            scored, read = _reads(
                spec, i, run[i], entries[i], tokens if (m := into[i]) is None else m, mask[i]
            )
            ops += prices[run[i]].attention(
                i, open_q[i], open_kv[i], scored, read, fused, into[i], read_bits, again, bounds
            )
        else:
            ops += prices[tokens].gap(i, open_kv[i], i in filled, i in twice)
        if i in ffn:
            ops += prices[ffn_run[i]].ffn(i)
    head = prices[tokens].linear(
        "lm_head", None, spec.d_model, spec.vocab, rows=logits, weight_bits=head_bits
    )
    return [*ops, head] if logits else ops


def _at_least_one(tokens: int, batch: int) -> None:
    if tokens < 1 or batch < 1:
        raise ValueError(
            f"A pass feeds at least one row of one sequence; tokens = {tokens}, batch = {batch}."
        )


_SubLayers = tuple[range, set[int], set[int], set[int], set[int]]


def _sub_layers(spec: ModelSpec, attn: Any, ffn: Any, propagated: Any, copied: Any) -> _SubLayers:
    """The layers; those whose attention and whose feed-forward block run; those filled and those copied."""
    layers = range(spec.n_layers)
    runs, blocks = (_chosen(which, layers) for which in (attn, ffn))
    filled, twice = (_chosen(x, [i for i in layers if i not in runs]) - runs for x in (propagated, copied))
    # of a model that was cut not all
    heads, columns = ({i for i in layers if at(i)} for at in (spec.kv_at, spec.ff_at))
    return layers, runs & heads, blocks & columns, filled & heads, twice & heads


def pass_cost(spec: ModelSpec, tokens: int, held: Held, **options: Unpack[PassOptions]) -> Cost:
    """The sum of `pass_ops`, which says what the options mean. Where the scores of all layers cost the same they are priced
    once, and what stands beside them is kept."""
    pairs, apart = options.get("pairs"), any(options.get(name) is not None for name in APART)
    if apart or spec.windows or spec.groups or not isinstance(held, int) or not isinstance(pairs, int | None):
        return Cost.of(pass_ops(spec, tokens, held, **options))
    rest, price = _beside_scores(
        spec, tokens, tuple((name, options.get(name)) for name in SIZES if name in options)
    )
    scored, read = _reads(spec, 0, tokens, held, tokens, pairs)
    fused = options.get("fused", True)
    bits = options.get("read_bits")
    again = options.get("again", 0)
    one, layers = (
        price.scores(0, spec.n_heads, spec.n_kv_heads, scored, read, fused, bits, again),
        spec.n_layers,
    )
    return replace(
        rest,
        flops=rest.flops + layers * one.flops,
        kv_read_bytes=rest.kv_read_bytes + layers * one.kv_read_bytes,
        act_bytes=rest.act_bytes + layers * one.act_bytes,
        launches=rest.launches + layers,
    )


@lru_cache(maxsize=256)
def _beside_scores(spec: ModelSpec, tokens: int, sizes: tuple[tuple[str, Any], ...]) -> tuple[Cost, Prices]:
    """What a pass of so many rows costs without its scores, in all layers, and the prices of its operators."""
    options, stated = dict(sizes), signature(pass_ops).parameters
    beside = Cost.of(op for op in pass_ops(spec, tokens, 0, **options) if op.name != SCORES)
    usual = {name: options.get(name, stated[name].default) for name in PRICED}
    return beside, prices_of(spec, tokens, **usual)


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
    """The price of asking whether to stop: the whole head, a linear classifier on the hidden state (`classes` outputs), a
    router (one output), the cosine of two states (3 h FLOPs), or a net h -> `inner` -> h that imitates states to come and a
    classifier on twice h."""
    h = spec.d_model
    if kind == "cosine":
        return Op("exit_test", layer, 3 * h * rows, act_bytes=size(2 * h * rows, act_bits))
    price = Prices(spec, rows, 1, weight_bits, act_bits, act_bits, dequant=False)
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
    return chain * held + chain * (chain + 1) // 2 + nodes * (held + chain) + _depths(tuple(parents))


@lru_cache(maxsize=64)
def _depths(parents: tuple[int, ...]) -> int:
    """Depths of all nodes of a tree below its root, summed; every layer of a pass asks for the same one."""
    return sum(depths(parents))


class RecordOptions(TypedDict, total=False):
    """The keywords of `ops_of`, for the functions that hand them on."""

    draft: DraftTree | None
    held: Held | None
    logits: int | None
    bits: float
    weight_bits: float | None
    read_bits: float | None
    fused: bool


def ops_of(spec: ModelSpec, record: Pass, **options: Unpack[RecordOptions]) -> list[Op]:
    """The operators of a recorded pass.

    draft:  the step's tree, for a verify pass: its true mask entries are charged instead of a causal chain's
    held:   entries, as `pass_ops` takes them; None: the record's
    logits: rows that reached the head; None: the record's, else the last one where a prompt is read, all otherwise
    bits:   of weights, activations and cache (`DTYPE_BITS[header.dtype]`); weight_bits: the weights' if they differ;
            read_bits: those of entries that are read, on average
    Of a pass that did not read all that was held what it read is charged: of its own rows each is counted against all of that.
    """
    entries, own = _recorded(spec, record, **options)
    return [*pass_ops(spec, record.tokens, entries, **own), *_asked(spec, record, own)]


def cost_of(spec: ModelSpec, record: Pass, **options: Unpack[RecordOptions]) -> Cost:
    """The sum of `ops_of`, which says what the options mean."""
    entries, own = _recorded(spec, record, **options)
    cost, asked = pass_cost(spec, record.tokens, entries, **own), _asked(spec, record, own)
    return cost + Cost.of(asked) if asked else cost


def _recorded(  # noqa: PLR0913
    spec: ModelSpec,
    record: Pass,
    *,
    draft: DraftTree | None = None,
    held: Held | None = None,
    logits: int | None = None,
    bits: float = 16,
    weight_bits: float | None = None,
    read_bits: float | None = None,
    fused: bool = True,
) -> tuple[Held, PassOptions]:
    """Entries and options with which `pass_ops` makes the operators of a recorded pass."""
    options: PassOptions = {
        "batch": record.batch,
        "fused": fused,
        "act_bits": bits,
        "kv_bits": bits,
        "read_bits": read_bits,
    }
    options["weight_bits"] = bits if weight_bits is None else weight_bits
    if logits is None:  # where a context looks at the prompt by some layers alone nothing reaches the head
        if record.phase in STATES and record.attn is not None:
            logits = 0
        elif record.phase in READS:
            logits = 1
        else:
            logits = record.tokens
        logits = logits if record.logits is None else record.logits
    options["logits"] = logits
    options["attn_layers"], options["ffn_layers"] = record.attn, record.ffn
    options["propagated"], options["copied"] = record.propagated or 0, record.copied or 0
    options["again"] = _again(record)
    along = None if not record.joined else [record.tokens + record.along(i) for i in range(spec.n_layers)]
    options["bounds"], options["rows"] = record.bounds, record.rows or along
    if held is not None:
        entries = held
    elif record.read is None:
        entries = record.held
    else:
        entries = record.read
    entries = _more(_more(entries, record.aside or 0), record.pending or 0)
    tree = record.rows is None and record.tokens  # rows that enter layer by layer are a chain's
    if draft is not None and record.phase in DECIDES and tree > len(draft.parents):
        options["pairs"] = _pairs_of(spec, entries, draft.parents, along or record.tokens)
    if record.routed is not None:
        options.update(_by_row(spec, record, entries, None if draft is None or not tree else draft.parents))
    return entries, options


def _pairs_of(
    spec: ModelSpec, held: Held, parents: Sequence[int], rows: int | list[int]
) -> int | list[int | Fraction]:
    """True mask entries of a pass that checks a tree: one number where all layers hold and run as much, else one a layer."""
    if isinstance(held, int) and isinstance(rows, int) and not spec.windows:
        return tree_pairs(parents, held, rows)
    each, fed = _each_layer("held", held, spec), _each_layer("rows", rows, spec)
    seen = (
        [(tree_pairs(parents, n, fed[i], spec.window(i)), 0) for n in _heads(h)] for i, h in enumerate(each)
    )
    return [_mean(x)[0] for x in seen]


def _asked(spec: ModelSpec, record: Pass, options: PassOptions) -> list[Op]:
    """What it cost a recorded pass to ask whether to leave, and the maps of trained exits."""
    bits, weight_bits = options["act_bits"], options["weight_bits"]
    return [op for more in (_tests, _maps) for op in more(spec, record, bits, weight_bits)]


def _by_row(spec: ModelSpec, record: Pass, held: Held, parents: Sequence[int] | None) -> PassOptions:
    """What each layer of a pass ran and read whose rows did not all run it; parents: of the tree that it checked."""
    layers = range(spec.n_layers)
    attn, ffn = ([record.running(i, block) for i in layers] for block in ("attn", "ffn"))
    entering = [record.tokens if record.gap == "propagate" else len(rows) for rows in attn]
    each = _each_layer("held", held, spec)
    pairs = [
        _mean([(_pairs(spec, i, rows, n, record, parents), 0) for n in _heads(h)])[0]
        for i, rows, h in zip(layers, attn, each, strict=True)
    ]
    return {"rows": [*map(len, attn)], "ffn_rows": [*map(len, ffn)], "entering": entering, "pairs": pairs}


def _pairs(
    spec: ModelSpec, layer: int, rows: list[int], held: int, record: Pass, parents: Sequence[int] | None
) -> int:
    """True entries of the mask for those `rows` of a pass that run the attention of a layer over `held` entries."""
    others = set(range(record.tokens) if record.gap == "propagate" else rows)  # what leaves entries
    if parents is not None and record.tokens == len(parents) + 1 and parents:
        seen = (held + len(others.intersection(_line(row, parents))) for row in rows)
        return sum(min(n, spec.window(layer) or n) for n in seen)
    if not spec.causal:
        return len(rows) * (held + len(others))
    return sum(_seen(spec, layer, 1, held + sum(x < row for x in others))[0] for row in rows)


def _line(row: int, parents: Sequence[int]) -> list[int]:
    """The rows from `row` of a tree's pass to its root, row 0."""
    line = [row]
    while line[-1]:
        line.append(parents[line[-1] - 1] + 1)
    return line


def _tests(spec: ModelSpec, record: Pass, bits: float, weight_bits: float) -> list[Op]:
    """What it cost to ask whether to leave. The logits of the test that a pass left by are those that it answers with."""
    asked = record.tests or []
    if record.asks == "router":  # in front of both blocks of every layer
        asked = [i for i in range(spec.n_layers) for _ in range(2)]
    if record.asks == "head" and asked and asked[-1] not in _chosen(record.attn, range(spec.n_layers)):
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
        weight_bits=weight_bits,
        act_bits=bits,
    )
    return [bare(layer=i) for i in asked]


def _maps(spec: ModelSpec, record: Pass, bits: float, weight_bits: float) -> list[Op]:
    """What the maps of trained exits cost: of each test by the head, and else of the state that a pass left with."""
    asked = record.tests or []
    if not record.rank or not asked:
        return []
    if record.asks != "head":
        asked = [i for i in asked[-1:] if i not in _chosen(record.attn, range(spec.n_layers))]
    price = Prices(spec, record.tokens, record.batch, weight_bits, bits, bits, dequant=False)
    return [op for i in asked for op in price.exit_map(i, record.rank)]


def look_ops(spec: ModelSpec, look: Look, bits: float = 16) -> list[Op]:
    """The operators of what a router worked out of a model's laws or states: a softmax over the vocabulary, as attention's;
    with two operations an entry more its entropy; the maps of a net, and five operations an activation between two of them."""
    if look.of != "net":
        entries = spec.vocab * look.rows
        return [
            Op(
                f"router_{look.of}",
                None,
                (5 if look.of == "law" else 7) * entries,
                act_bytes=size(entries, bits),
            )
        ]
    price = Prices(spec, look.rows, 1, bits, bits, bits, dequant=False)
    maps = [price.linear("router_net", None, i, o) for i, o in pairwise(look.widths)]
    between = [
        Op("router_act", None, 5 * w * look.rows, act_bytes=size(2 * w * look.rows, bits))
        for w in look.widths[1:-1]
    ]
    return [*maps, *between]


def _more(held: Any, count: int | Sequence[int]) -> Any:
    """So many entries more in each layer and head; count: one number, or by layer."""
    if not count:
        return held
    if isinstance(count, Sequence):
        each = held if isinstance(held, Sequence) else [held] * len(count)
        return [_more(x, n) for x, n in zip(each, count, strict=True)]
    return [_more(x, count) for x in held] if isinstance(held, Sequence) else held + count


def _chosen(which: Collection[int] | int | None, among: Sequence[int]) -> set[int]:
    if which is None:
        return set(among)
    return set(among[:which]) if isinstance(which, int) else set(which)


def _again(record: Pass) -> int:
    """Of the entries of all sequences so many that another sequence has loaded."""
    if record.distinct is not None and isinstance(record.held, int):
        return record.batch * record.held - record.distinct
    return (record.shared or 0) * (record.batch - 1)


def _heads(entries: int | Sequence[int]) -> Sequence[int]:
    """Entries of a layer by KV head; one number stands for all."""
    return [entries] if isinstance(entries, int) else entries


def _reads(
    spec: ModelSpec, layer: int, n: int, held: int | Sequence[int], into: int, pairs: int | Fraction | None
) -> tuple[int | Fraction, int | Fraction]:
    """Pairs of n rows that run a layer, and entries that they read of those `held` and of the `into` rows that leave entries,
    of one KV head on average; pairs: where they are known."""
    scored, read = _mean([_seen(spec, layer, n, h + max(into - n, 0)) for h in _heads(held)])
    return scored if pairs is None else pairs, read


def _mean(each: Sequence[tuple[int, int]]) -> tuple[int | Fraction, int | Fraction]:
    """Pairs and entries read of one KV head, on average: times the number of heads it is whole."""
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


def _seen(spec: ModelSpec, layer: int, n: int, held: int) -> tuple[int, int]:
    """Query-key pairs of n new rows on `held` entries under the model's own mask, and entries read."""
    window = spec.window(layer)
    if not spec.causal:
        return n * (held + n), held + n
    if window is None:
        return n * held + n * (n + 1) // 2, held + n
    short = min(max(window - held, 0), n)  # rows that still see everything before them
    return short * held + short * (short + 1) // 2 + (n - short) * window, min(held + n, window + n - 1)
