"""Lookahead decoding: every pass also advances a window of Jacobi iterations, whose n-grams are drafted later."""

from __future__ import annotations

from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.comb import Comb
from ..shared.union import merge_trees


@component
class Lookahead(Drafter):
    """Every pass reads guesses and a window behind the root t.

    The guesses are up to G n-grams of a pool that begin with t. The window has W columns and N - 1 levels. Each level holds the
    target's own choices after the level below it, which is one step older. The window is a comb of auxiliary nodes: its cells
    see what tree attention shows them, are never accepted, and are invisible to the rule. After the pass, the choices behind
    the deepest level complete W n-grams. They go into the pool, and the window moves on by one.

    The pool maps a first token to its last G n-grams, the newest last; a repeated n-gram becomes the newest. The window begins
    with W + N - 3 tokens drawn from the prompt. Its N - 1 levels fill in N - 2 steps, and until then it completes no n-gram.
    With `pool_from_prompt` the pool also gets the n-grams of prompt and text.

    A pass has (N - 1)(W + g) rows, with g guesses that all begin differently. Guesses that begin alike share rows here, so a
    token is tried once. The authors send each guess separately, and after accepting a token keep the guesses that have it; the
    tokens are the same. Columns with cells past the end of the text are left out.

    Another difference: for a guess that matches to its end, the authors emit N - 1 tokens. This code also emits the target's
    own next token, N in all, at no cost. N = 2 is plain Jacobi on a window of one level.

    Guesses do not depend on the random draws of the text: lossless under any sampler. Costs no separate pass, but about (N -
    1)(W + G) rows in each.
    """

    title = "Lookahead decoding"
    source = "Fu et al. 2024, arXiv:2402.02057, section 3; hao-ai-lab/LookaheadDecoding, lade/decoding.py"
    tells: ClassVar[dict[str, Note]] = {
        "pool": Note("series", "pool", "n-grams", "held when the guesses were taken from it"),
        "tried": Note(
            "series", "tried", "guesses", "n-grams of the pool that begin with the root", line="guesses"
        ),
        "harvested": Note("set", "harvested", "token", "n-grams that the window completed in this pass"),
        "cell": Note(
            "node",
            "level, column",
            what="a cell of the window, level 0 along the text; the root is its column 0",
        ),
    }

    window: int = param(5, low=1, high=64, unit="columns", help="width of the Jacobi window (W)")
    ngram: int = param(
        4, low=2, high=16, unit="tokens", help="length of the n-grams (N); the window has N - 1 levels"
    )
    guesses: int = param(
        5,
        low=0,
        high=64,
        unit="n-grams",
        help="n-grams kept for each first token and tried in each pass (G); 0: none",
    )
    pool_from_prompt: bool = param(
        False, help="also add the n-grams of the prompt and the generated text to the pool"
    )

    @property
    def branches(self) -> bool:
        return True

    def begin(self, ctx: Context) -> None:
        self._pool: dict[int, dict[tuple[int, ...], None]] = {}
        self._size, self._read = 0, 0
        prompt, start = ctx.tokens[: ctx.prompt], len(ctx.tokens)
        places = (ctx.chance.uniform(start + i, "init") for i in range(self.window + self.ngram - 3))
        self._comb = Comb([prompt[int(u * len(prompt))] for u in places])

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        if self.pool_from_prompt:
            for end in range(max(self._read, self.ngram), len(ctx.tokens) + 1):
                self._add(tuple(ctx.tokens[end - self.ngram : end]))
            self._read = len(ctx.tokens) + 1
        ngrams = self._pool.get(ctx.tokens[-1], {})
        chains = [list(x[: ctx.room]) for x in ngrams]
        tokens, parents, _ = merge_trees((x, list(range(ROOT, len(x) - 1))) for x in chains)
        self._comb.fit(ctx.room)
        first, (cells, above) = len(tokens), self._comb.tree()
        parents = parents + [ROOT if x == ROOT else first + x for x in above]
        at = [[0, j] for j in range(1, self._comb.columns)]
        at += [[level, j] for level in range(1, len(self._comb.levels)) for j in range(self._comb.columns)]
        notes: dict[str, Any] = {"pool": self._size, "tried": len(chains), "cell": [*([None] * first), *at]}
        may = [True] * first + [False] * len(cells)
        return Draft(tokens + cells, parents, acceptable=may, source="pool and window", notes=notes)

    def observe(self, outcome: DraftOutcome) -> None:
        draft, comb = outcome.draft, self._comb
        if not comb.levels or draft.notes is None:
            return
        first = draft.drafted_count
        new = [outcome.best[0 if end == ROOT else first + end + 1] for end in comb.ends()]
        if len(comb.levels) < self.ngram - 1:
            comb.grow(new)
            return
        harvest = comb.ngrams(outcome.root, new)
        for ngram in harvest:
            self._add(ngram)
        draft.notes["harvested"] = [list(x) for x in harvest]
        comb.shift(new)

    def _add(self, ngram: tuple[int, ...]) -> None:
        """Put an n-gram into the pool as the newest of its first token, and drop the oldest if there are more than G."""
        if not self.guesses:
            return
        held = self._pool.setdefault(ngram[0], {})
        self._size -= len(held)
        held.pop(ngram[1:], None)
        held[ngram[1:]] = None
        if len(held) > self.guesses:
            del held[next(iter(held))]
        self._size += len(held)
