"""Masked diffusion: the answer starts as masks after the prompt, and each pass fills some of them."""

from __future__ import annotations

from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.candidates import mask_fill_conflict, sampler_order_conflict
from decodescope.engine.decoding.shared.canvas import CANVAS, Canvas
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.engine.trace.values.grammar import LONGEST, GrammarError, parse_grammar

MOST = 4096  # places of a block


@component
class Masked(Strategy):
    """Put a canvas of mask tokens, as many as may be written, behind the prompt, and fill some in each pass.

    A pass reads prompt and canvas, and all its rows see each other. For each open place of the current block, the sampler
    chooses a candidate. The unmasking rule decides which candidates are committed; these stay. After a full block the next one
    follows. The text is emitted from its beginning on, up to the first token that ends it; blocks behind that are not decoded.
    Each pass is one step of the trace.

    The mask token is not a candidate. Confidence is the model's probability of a candidate before the sampler, as in the
    authors' code. A draw from the sampler's distribution replaces their Gumbel noise. The last block is shorter if the length
    is not a multiple.

    cache: "none": every pass reads prompt and canvas. "prefix": only the first pass of a block does; the later passes feed the
    block and everything to the right of it, and reuse the entries to the left. "dual": the later passes feed the block alone,
    and reuse the entries of both sides. Reused entries were made when the block was still masked, so they are exact only in a
    block's first pass. (In a model with one layer they are always exact, because its entries know nothing of each other.) As in
    Fast-dLLM, the first pass decides too. A block that it has filled is finished at once; their loop adds a pass.

    grammar: a text of a context-free grammar can always be made of the canvas, in exactly its places; so the text is one of the
    grammar's. A token is a terminal; the paper has a lexer. A masked stretch has a fixed length; theirs has any length and may
    turn out to have no filling. A candidate that leaves no possible text is refused, and the sampler chooses among the others
    (their loop refuses token by token, with the same result). Each place that a pass commits must be compatible with the more
    confident ones, or it stays open.
    """

    title = "Masked diffusion"
    source = (
        "LLaDA: Nie et al. 2025, arXiv:2502.09992, section 2.4; ML-GSAI/LLaDA, generate.py; caches: Fast-dLLM, Wu et al. 2025, "
        "arXiv:2505.22618, section 3.2; NVlabs/Fast-dLLM, llada/generate.py"
    )
    uses = frozenset({"unmasking", "sampler"})
    sides = "both"
    lossless = False
    changes = "places are filled in any order, several at once"
    details: ClassVar = {"canvas": CANVAS}

    block: int = param(
        32,
        low=1,
        high=MOST,
        unit="places",
        help="size of a block; each block is filled before the next one begins",
    )
    cache: str = param(
        "none",
        choices=("none", "prefix", "dual"),
        help="cached entries that passes of a block reuse: none, left of it, or on both sides",
    )
    grammar: str = param(
        "",
        lines=True,
        most=LONGEST,
        help="grammar of the text: brackets, sums, lists, or Lark rules; empty: any text",
    )

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "places": self.block}

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if (no := mask_fill_conflict(self.name, spec)) is not None:
            return no
        if self.cache == "dual" and method.unmasking.drops:
            dropped = f"{method.unmasking.name}, as set, drops places whose entries the cache dual keeps"
            return f"{dropped}: choose strategy.cache = prefix, or set unmasking.cut_after_end = false."
        return sampler_order_conflict(self.name, method.sampler) or self._grammar_conflict(method)

    def _grammar_conflict(self, method: MethodView) -> str | None:
        """Why the grammar cannot be obeyed; None if it can."""
        if not self.grammar.strip():
            return None
        if method.unmasking.reopens:
            return f"{method.unmasking.name} masks places again, and a grammar holds for what stays: choose another selector."
        if method.unmasking.drops:
            rule = method.unmasking.name
            return (
                f"{rule}, as set, drops places that a grammar counts on: set unmasking.cut_after_end = false."
            )
        try:
            parse_grammar(self.grammar)
        except GrammarError as error:
            return f"masked.grammar: {error}"
        return None

    def prefill(self, s: State) -> None:
        """Do nothing: a prompt's entries depend on the canvas, and the first pass reads both."""

    def begin(self, s: State) -> None:
        s.unmasking.begin(s.target.decoder)
        s.scratch = Canvas.create(s, self.block, self.cache, self.grammar.strip())

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        if s.scratch.is_full:  # a fork may continue writing
            self.begin(s)
        canvas: Canvas = s.scratch
        length = len(canvas.text.tokens)
        stale = canvas.stale_passes
        places, logits = canvas.read(s)
        view = canvas.view_for_selector(s, places, logits)
        verified = clock.mark()
        choice = s.unmasking.select(view, s.chance)
        taken = canvas.commit(view, choice)
        canvas.explore(s, view, choice, logits)
        rules = canvas.grammar
        columns = {
            "bars": choice.bars,
            "order": choice.order,
            "entropy": view.entropy,
            "final": choice.final,
        }
        fill = CanvasDetail(
            "canvas",
            canvas.text.start,
            length,
            [*view.block],
            view.places,
            view.candidate,
            view.places[taken].tolist(),
            view.candidate[taken].tolist(),
            [choice.rules[i] for i in taken],
            view.confidence,
            {name: column for name, column in columns.items() if column is not None},
            count=choice.count,
            anchors=choice.anchors,
            reopened=choice.reopened,
            cache=self.cache,
            stale=stale,
            edge=view.edge if view.edge < view.block[1] else None,
            cut=choice.cut,
            explored=view.explored,
            vetoes=None if rules is None else rules.vetoes,
            witness=None if rules is None else rules.witness,
            terminals=None if rules is None else rules.take_terminals(),
        )
        emitted, end = canvas.text.emit(s)
        return plain_move(s, emitted, end, started, verified, details=[fill])
