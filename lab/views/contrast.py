"""Contrast: what runs of one prompt share, where their texts part, and whether they must be the same. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from decodescope.engine.core.exactness import combine_exactness, exactness_text
from decodescope.engine.trace import Trace
from decodescope.engine.trace.query.comparability import guidance_record
from decodescope.engine.trace.query.summary import Summary, summarise
from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.engine.trace.records.parts import part_description
from decodescope.lab.formatting.tokens import visible_piece

Due = Literal["same", "law", "free"]  # the texts: must be equal; have one distribution; may differ
Verdict = Literal["same", "so far", "tied", "differs", "unknown", "free"]
EDGE = 1e-4  # a uniform closer than this to an end of its token's interval: rounding may choose the neighbour


@dataclass
class RunSide:
    """The data of one run that is kept for comparing it with others.

    begins: the position at which its text begins, after the prompt as it was read
    tokens: ids of the text as its steps wrote them;  wrote: of each, its step and its place there
    kept: drafted tokens that were accepted, one number per step that drafted
    uniforms: position in the text, prompt included -> the uniform that drew the target's own token there
    close: (step, place) -> what is known of the distribution there: [difference of the two likeliest in nats, whether that is a
    tie, and the ids of the two];  edges: position -> distance of the uniform from the nearer end of its token's interval
    """

    header: Header
    summary: Summary
    over: bool
    pieces: dict[int, Piece]
    begins: int = 0
    tokens: list[int] = field(default_factory=list)
    wrote: list[tuple[int, int]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    uniforms: dict[int, float] = field(default_factory=dict)
    edges: dict[int, float] = field(default_factory=dict)
    close: dict[tuple[int, int], tuple[float, bool, list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace) -> RunSide:
        """Read a run, finished or growing."""
        side = cls(trace.header, summarise(trace), trace.end is not None, {}, len(trace.effective_prompt))
        for step in trace.steps:
            side._read_step(step)
        side.pieces = {int(token): piece for token, piece in trace.header.pieces.items()} | side.pieces
        return side

    def _read_step(self, step: Step) -> None:
        self.pieces.update({int(token): piece for token, piece in (step.pieces or {}).items()})
        for i, token in enumerate(step.emitted):
            self.tokens.append(token)
            self.wrote.append((step.step, i))
        if step.drafted:
            self.kept.append(step.accepted)
        path = step.path or []
        if step.extra is not None and step.extra.u is not None:
            x, at = step.extra, step.n + len(path)
            self.uniforms[at] = step.extra.u
            self.edges[at] = min(step.extra.u - x.low, x.high - step.extra.u)
        if step.tops is None:
            return
        tied = {int(rank): gap for rank, gap in step.tie or []}
        rank_of = {int(node): rank for rank, node in enumerate(step.tops.places)}
        for i, node in enumerate([-1, *path]):
            rank = rank_of.get(node)
            if rank is None or i >= len(step.emitted):
                continue
            ids, p = step.tops.ids[rank], step.tops.p[rank]
            best = [int(k) for k in np.argsort(-p, kind="stable") if ids[k] >= 0][:2]
            if len(best) == 2 and p[best[1]] > 0:
                gap = tied.get(rank, math.log(float(p[best[0]]) / float(p[best[1]])))
                self.close[step.step, i] = (gap, rank in tied, [int(ids[k]) for k in best])

    @property
    def is_greedy(self) -> bool:
        """Whether the distribution always has a single token."""
        return bool(part_description(self.header, "sampler").get("greedy"))

    @property
    def uses_drafts(self) -> bool:
        """Whether something other than the target's own draws can settle a token."""
        return bool(part_description(self.header, "drafter").get("drafts", True))

    def top_choice_at(self, token: int) -> tuple[float, bool, list[int]] | None:
        """What is known of the distribution of a token, counted from 0; None where nothing was recorded."""
        return self.close.get(self.wrote[token]) if token < len(self.wrote) else None

    def text_of(self, token: int, most: int = 40) -> str | None:
        """The token of that number with visible white space and signs; None if the text has none."""
        if token >= len(self.tokens):
            return None
        text = self.tokens[token]
        return visible_piece(self.pieces[text], most) if text in self.pieces else f"#{text}"


@dataclass(frozen=True)
class Contrast:
    """A comparison of two runs.

    at: tokens that are equal;  parted: whether the next ones differ;  ids: those tokens, None where a text has none
    gap: nats between the two likeliest there, by the first record that has them;  tied: whether that choice is a numerical tie;
    None where neither record says it
    due: the expected relation, with the reason `why` in a sentence;  verdict: the observed relation
    shared: positions at which both drew the target's own token with one uniform, of `both` at which both drew it
    """

    at: int
    parted: bool
    ids: tuple[int | None, int | None]
    gap: float | None
    tied: bool | None
    due: Due
    why: str
    verdict: Verdict
    shared: int
    both: int

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            **vars(self),
            "ids": list(self.ids),
            "gap": self.gap if self.gap is None or math.isfinite(self.gap) else None,
        }


def contrast(a: RunSide, b: RunSide, names: Sequence[str] = ("A", "B")) -> Contrast:
    """Compare two runs; the sentences use `names`."""
    common = next((i for i, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=False)) if x != y), None)
    at = min(len(a.tokens), len(b.tokens)) if common is None else common
    ids = (_token_id(a, at), _token_id(b, at))
    gap, tied = _gap_and_tie(a, b, at, ids) if common is not None else (None, None)
    due, why = expected_agreement(a, b, names)
    verdict: Verdict = "free"
    if due == "same":
        verdict = "same" if a.over and b.over else "so far"
        if common is not None:
            if tied is None:
                verdict = "unknown"
            elif tied:
                verdict = "tied"
            else:
                verdict = "differs"
    same = have_equal_prompts(a.header, b.header)
    both = a.uniforms.keys() & b.uniforms.keys() if same else set()
    shared = sum(a.uniforms[x] == b.uniforms[x] for x in both)
    return Contrast(at, common is not None, ids, gap, tied, due, why, verdict, shared, len(both))


def expected_agreement(a: RunSide, b: RunSide, names: Sequence[str] = ("A", "B")) -> tuple[Due, str]:
    """Whether the texts of two runs must be equal, have one distribution, or may differ; and why, as a sentence."""
    one, two = a.header, b.header
    mark = [(h.model.get("fingerprint") or h.model.get("name")) for h in (one, two)]
    if mark[0] != mark[1]:
        return "free", "The models differ, so the texts need not be the same."
    if not have_equal_prompts(one, two):
        return "free", "The prompts differ, so the texts need not be the same."
    changed = [name for name, side in zip(names, (a, b), strict=True) if not side.header.is_exact]
    if changed:
        verb = "is" if len(changed) == 1 else "are"
        values = " and ".join(
            dict.fromkeys(
                exactness_text(side.header.exactness) for side in (a, b) if not side.header.is_exact
            )
        )
        return "free", f"{' and '.join(changed)} {verb} {values}, so the texts may differ."
    if guidance_record(one) != guidance_record(two):
        return "free", "The guidance differs, so the texts may differ."
    if one.method.get("sampler") != two.method.get("sampler"):
        return "free", "The samplers differ, so the texts may differ."
    if one.dtype != two.dtype or one.device != two.device:
        return (
            "free",
            f"The numbers are of another kind ({one.dtype} on {one.device}, {two.dtype} on {two.device}).",
        )
    values = exactness_text(combine_exactness((one.exactness, two.exactness)))
    if a.is_greedy and b.is_greedy:
        return "same", f"Both are {values} and greedy: the texts must be the same, but where two logits tie."
    if one.seed == two.seed and not a.uses_drafts and not b.uses_drafts:
        return (
            "same",
            "One seed, and neither drafts: every token is drawn with the same uniform, so the texts must be equal.",
        )
    seed = "One seed" if one.seed == two.seed else "Other seeds"
    return (
        "law",
        f"Both are {values}: one distribution, not one text. {seed}; drafts are tested with uniforms of their own.",
    )


def shared_randomness(a: RunSide, b: RunSide, contrast: Contrast, names: Sequence[str] = ("A", "B")) -> str:
    """Which random numbers two runs have in common, and the consequence."""
    still = [name for name, side in zip(names, (a, b), strict=True) if side.is_greedy]
    if still:
        verb = "draws" if len(still) == 1 else "draw"
        return f"{' and '.join(still)} {verb} nothing: greedy decoding has no chance in it."
    if a.header.seed != b.header.seed:
        return "Other seeds: no uniform is shared, so what differs may be luck."
    if not have_equal_prompts(a.header, b.header):
        return "One seed, but other prompts: the shared uniforms meet other distributions."
    shared = f"{contrast.shared} of {contrast.both} such positions"
    rest = "; accepted drafts were tested with other uniforms" if a.uses_drafts or b.uses_drafts else ""
    drawn = (
        f"One seed: where both draw the target's own token they use the same uniform, here at {shared}{rest}."
    )
    return f"{drawn} What differs there comes from the distributions, not from luck."


def have_equal_prompts(a: Header, b: Header) -> bool:
    """Whether two runs began with the same tokens."""
    return bool(np.array_equal(a.prompt, b.prompt))


def _token_id(side: RunSide, token: int) -> int | None:
    return side.tokens[token] if token < len(side.tokens) else None


def _gap_and_tie(
    a: RunSide, b: RunSide, at: int, ids: tuple[int | None, int | None]
) -> tuple[float | None, bool | None]:
    """The difference in nats at the token where two texts part, and whether the choice is a tie; None if not recorded."""
    known = [law for law in (a.top_choice_at(at), b.top_choice_at(at)) if law is not None]
    if not a.is_greedy:
        edges = [side.edges[side.begins + at] for side in (a, b) if side.begins + at in side.edges]
        return (known[0][0] if known else None), min(edges) < EDGE if edges else None
    if not known:
        return None, None
    return known[0][0], any(tie and set(ids) <= set(best) for _, tie, best in known)
