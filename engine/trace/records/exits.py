"""Exit: where a pass left early, and by which tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Price = Literal["", "head", "classifier", "cosine", "imitation", "router"]


@dataclass
class Exit:
    """Early exits of one pass: the depth at which it left, and the tests made on the way.

    depth: layers that ran, or that a pass which goes on higher up has below it;  criterion: what was asked
    tests: [[layer, score, bound], ...] in order: the pass leaves in front of the first layer whose score reaches its bound
    below: a small score means sure: it leaves where the score is under the bound
    closed: feed-forward blocks that the pass left out, where the tests are asked behind such blocks; None: they are exits
    best:  of each test the likeliest token there, for the row that decided; None: its logits were not worked out
    rows:  of each of several rows the layer before which it was first sure by itself; the depth, where it never was
    drafted: it is of a pass that drafted: what it left out checks its token later on
    asks:  what a test costs: the whole "head", a "classifier" on the state, the "cosine" of two states, an "imitation" of the
           states to come by a net of the width `inner`, and a classifier on these and on those before, or "": nothing;
           "router": one product of the state with a vector, in front of every sub-layer
    whole: the best token of each row at full depth, where an oracle asked all layers before; None: nobody asked
    rank:  width of the map of trained exits, through which states were read; 0: there is none
    known: of each row whether what enters the layers that ran was in a table, where it is looked up; table: bytes of that
    scores: of rows that chose alone, each row's score in front of the attention and the feed-forward block of each layer, in
           order: it ran those whose score is above `over`
    """

    depth: int
    criterion: str
    tests: list[list[float]] = field(default_factory=list)
    below: bool = False
    asks: Price = ""
    closed: list[int] | None = None
    best: list[int] | None = None
    rows: list[int] | None = None
    drafted: bool = False
    whole: list[int] | None = None
    rank: int = 0
    known: list[bool] | None = None
    table: int | None = None
    inner: int | None = None
    scores: list[list[float]] | None = None
    over: float = 0.0

    @property
    def signs(self) -> list[str]:
        """By layer, what each row ran of it by its scores, in the notation of a pass's `routed`."""
        ran = [[x > self.over for x in row] for row in self.scores or []]
        pairs = [list(zip(row[::2], row[1::2], strict=False)) for row in ran]
        return ["".join("-far"[2 * a + f] for a, f in layer) for layer in zip(*pairs, strict=False)]

    @property
    def open_share(self) -> float:
        """Share of the sub-layers that the rows ran, by their scores."""
        ran = [x > self.over for row in self.scores or [] for x in row]
        return sum(ran) / max(len(ran), 1)

    def test_leaves(self, score: float, bound: float) -> bool:
        """True if a test with this score leaves."""
        return score < bound if self.below else score >= bound


def check_exit(left: Exit, layers: int) -> Iterator[str]:
    """Problems of an exit of a model with `layers` layers: sentences without their full stop."""
    if any(len(test) != 3 for test in left.tests):
        yield "exits has a test that is not layer, score and bound"
        return
    asked = [test[0] for test in left.tests]
    if asked != sorted(set(asked)) or any(not 0 <= layer < layers for layer in asked):
        yield f"exits asks in front of the layers {[f'{x:g}' for x in asked]}, which do not rise below {layers}"
    if left.best is not None and len(left.best) != len(asked):
        yield f"exits has {len(asked)} tests and names the best token of {len(left.best)}"
    if any(not 0 <= row <= left.depth for row in left.rows or ()):
        yield f"exits has rows that were sure before the layers {left.rows}, but {left.depth} layers ran"
    if left.whole is not None:
        yield from _oracle_problems(left, left.whole)
    if (left.known is None) != (left.table is None) or (left.known is not None and not left.depth < layers):
        yield f"exits looks {len(left.known or [])} rows up in a table of {left.table} bytes, and {left.depth} layers ran"
    if left.scores is not None and any(len(row) != 2 * layers for row in left.scores):
        yield f"exits has rows with scores of other sub-layers than the {2 * layers} that there are"
    if left.closed is not None:
        yield from _gate_problems(left, layers)
        return
    if left.asks == "router":
        return  # all layers are there; the check of passes compares what rows ran
    if not asked and not left.asks:
        return  # a decision by position or token leaves no test
    leaves = [int(layer) for layer, score, bound in left.tests if left.test_leaves(score, bound)]
    due = leaves[0] if leaves else layers
    if left.depth != due or (leaves and asked[-1] != due):
        yield f"exits says that {left.depth} layers ran, but by its tests it is {due}"


def _oracle_problems(left: Exit, whole: list[int]) -> Iterator[str]:
    """Problems of the choices that an oracle knew: a test scores 1 if every row's best token is the one at full
    depth, and 0 otherwise."""
    if not whole or (left.rows is not None and len(left.rows) != len(whole)):
        yield f"exits knows the full depth's choice of {len(whole)} rows, and has {len(left.rows or ())}"
        return
    for (layer, score, _), best in zip(left.tests, left.best or (), strict=False):
        same = best in whole if score == 1 or len(whole) > 1 else best == whole[0]
        if score not in (0, 1) or (score == 1 and not same) or (score == 0 and same and len(whole) == 1):
            yield f"exits has the score {score:g} at layer {layer:g}, where {best} is the best token, and at full depth {whole}"


def check_ahead(exits: Sequence[Exit], ahead: Sequence[int]) -> Iterator[str]:
    """Problems of oracles that knew choices; ahead: rows of the step's passes that looked ahead over all layers."""
    due = [len(left.whole) for left in exits if left.whole is not None]
    if any(due.count(x) > [*ahead].count(x) for x in due):
        yield f"exits knows the full depth's choice of {due} rows, and passes that look ahead had {[*ahead]}"


def _gate_problems(left: Exit, layers: int) -> Iterator[str]:
    """Problems of tests after feed-forward blocks: only blocks above one that passed are left out, with all in between."""
    closed, above = left.closed or [], -1
    passed = [int(layer) for layer, score, bound in left.tests if left.test_leaves(score, bound)]
    ran = {int(layer) for layer, *_ in left.tests}
    for layer in closed:
        above = layer if layer - 1 in passed or layer - 1 == above else -1
        if above < 0 or layer >= layers or layer in ran:
            yield f"exits leaves out the feed-forward block of layer {layer}, and no test says so"
    for layer in passed:
        if layer + 1 not in closed:
            yield f"exits has a test behind layer {layer} that passed, and the block above it was not left out"
    if left.depth != layers:
        yield f"exits says that {left.depth} layers ran, of {layers}, where feed-forward blocks alone are left out"
