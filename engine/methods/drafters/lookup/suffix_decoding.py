"""Suffix decoding: draft what followed the end of the text most often, in the request and in earlier outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.datastore import LARGEST, load_datastore
from ..shared.frequent_continuations import Continuation, GrowingText, Match
from ..shared.suffix_array import DEPTH, SuffixArray


@component
class SuffixDecoding(Drafter):
    """Two counted suffix trees: one of this request (prompt and output), one of earlier outputs.

    Each suffix of the text of 1, 2, ... tokens, up to the longest that a tree holds, is a candidate. From its node the draft
    follows the most frequent child, again and again. The estimated probability of a token is the product of count(child) /
    count(node) along the path. A draft ends below `min_probability`, or after max_spec_factor * m + max_spec_offset tokens for
    a match of m tokens: a long match is trusted further. The score of a candidate is the sum of its probabilities, which is an
    estimate of its accepted tokens. The best score is drafted; of equal ones the longer match, and the request's tree first.
    With `use_tree` the most probable paths are drafted together, as a tree of as many tokens.

    A tree counts sequences of up to `max_depth` tokens, match and draft together. As in the official code, the node of a match
    also counts the end of the text itself, which nothing follows yet. That code keeps a compressed tree. Here the same counts
    come from the places of a match: in the text by comparing arrays, in the outputs by a suffix array.

    A server adds every output to the second tree. Here a repeated run must draft the same, so the outputs are a file, which a
    record names by its hash. It is text with a form feed on a line of its own between two outputs; without a file there are
    none. Costs no pass of any model. The draft is chosen without chance: lossless under any sampler.
    """

    title = "Suffix decoding"
    source = (
        "Oliaro et al. 2024, arXiv:2411.04975, sections 4.1 to 4.3; snowflakedb/ArcticInference, "
        "csrc/suffix_decoding/suffix_tree.cc, commit 9d464388"
    )
    tells: ClassVar[dict[str, Note]] = {
        "match": Note(
            "series", "match", "tokens", "length of the suffix that was followed", line="max_depth"
        ),
        "score": Note("series", "score", "tokens", "that stay, if the estimates hold"),
        "tree": Note("set", "from", what="the request's tree, or that of earlier outputs"),
        "probabilities": Note("node", "probability", what="estimated from the counts along the path"),
    }

    max_draft_tokens: int = param(24, low=1, high=128, unit="tokens", help="maximum size of a draft")
    max_spec_factor: float = param(
        1.0, low=0.0, high=16.0, step=0.5, help="draft at most this many tokens for each token of the match"
    )
    max_spec_offset: float = param(
        0.0, low=-16.0, high=64.0, step=1.0, unit="tokens", help="tokens added to that limit"
    )
    min_probability: float = param(
        0.1, low=0.0, high=1.0, step=0.05, help="draft no token whose estimated probability is below this"
    )
    max_depth: int = param(
        24, low=2, high=DEPTH, unit="tokens", help="depth of the suffix trees: match and draft together"
    )
    use_tree: bool = param(False, help="draft a tree of the most probable paths instead of one chain")
    outputs: str = param(
        "",
        file=True,
        most=LARGEST,
        help="text file of earlier outputs, at most 16 MiB, with a form feed on a line between two; empty: none",
    )

    @property
    def looks_up(self) -> bool:  # type: ignore[override] # depends on a knob
        """True if a draft is a chain."""
        return not self.use_tree

    @property
    def branches(self) -> bool:
        return self.use_tree and self.max_draft_tokens > 1

    @property
    def largest_draft(self) -> tuple[int, int]:
        return self.max_draft_tokens, min(self.max_draft_tokens, self.max_depth - 1)

    def begin(self, ctx: Context) -> None:
        vocab = ctx.target.decoder.vocab
        self._outputs = load_datastore(self.outputs, ctx.encode, vocab) if self.outputs else SuffixArray([])
        self._request = GrowingText()

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        self._request.extend(ctx.tokens)
        match, best = self._best(self._request.matches(self.max_depth - 1), ctx.room)
        tree = "request"
        if self.outputs:
            context = ctx.tokens[-self.max_depth :]
            longest = self._outputs.find_longest(context, min(self.max_depth, len(context)) - 1)[0]
            matches = (self._find(context[-m:]) for m in range(1, longest + 1))
            other, second = self._best(matches, ctx.room)
            if second.score > best.score:
                match, best = other, second
                tree = "outputs"
        if not best.tokens:
            return Draft()
        notes = {
            "match": match,
            "score": round(best.score, 4),
            "tree": tree,
            "probabilities": [round(x, 4) for x in best.probabilities],
        }
        return Draft(best.tokens, best.parents, source=f"suffix tree of the {tree}", notes=notes)

    def _find(self, suffix: list[int]) -> Match:
        low, high = self._outputs.find(suffix)
        return Match(self._outputs.ids, self._outputs.order[low:high].astype("int64") + len(suffix))

    def _best(self, matches: Iterable[Match], room: int) -> tuple[int, Continuation]:
        """The length of the match with the best score, and what follows it. matches: of 1, 2, ... tokens."""
        best = (0, Continuation([], [], []))
        for m, match in enumerate(matches, 1):
            size = int(m * self.max_spec_factor + self.max_spec_offset + 1e-6)
            size, deepest = min(size, self.max_draft_tokens), min(room, self.max_depth - m)
            if self.use_tree:
                own = match.best_tree(size, deepest, self.min_probability)
            else:
                own = match.best_path(min(size, deepest), self.min_probability)
            if own.score >= best[1].score:
                best = m, own
        return best
