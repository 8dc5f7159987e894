"""Parallel iterative edits: one pass tags every token of a draft, all tags are applied at once, until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.candidates import (
    draw_candidates,
    mask_fill_conflict,
    sampler_order_conflict,
)
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.edit import EditRows, EditTagger
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.layers.faults import require_finite
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.values.edits import (
    KEEP,
    TAGS,
    Why,
    apply_tags,
    edit_outcome,
    likely_edits,
    next_draft,
    place_tags,
)

from ..shared.strategy_text import ids_of

NEAR = 0.1  # minimum probability for listing an edit that was not made
WHY: dict[Why, str] = {
    "fixed": "The last pass changed nothing, so the text is final.",
    "again": "The last pass gave a text that an earlier one had read, so it is final.",
    "rounds": "No more passes are allowed.",
    "empty": "The last pass left nothing, so it was not applied.",
}
LIKELY = "max(delete, replace, insert)"
UNMADE = [Sentence("pass {index}, place {k - 1}: {edit}, not made")]
EDITS = TallyForm(
    title="Edits of a draft",
    number="p",
    bar="p of keep, or sure",
    value=LIKELY,
    says=[Sentence("a draft of {rows - 1} edited in {passes} passes, {changed} tags")],
    row=[
        Sentence("{token}→", given={"edit": "delete"}),
        Sentence("{token}→{instead}", given={"edit": "replace"}),
        Sentence("{token}→{token}{behind}", given={"edit": "insert"}),
        Sentence("→{behind}", given={"edit": "insert"}),  # before the first token
    ],
    outcomes={
        "made": Outcome(
            True, "max(keep, min_probability)", [Sentence("pass {index}, place {k - 1}: {edit}")]
        ),
        "left": Outcome(False, "max(keep, min_probability)", UNMADE),
        "tie": Outcome(False, "", UNMADE, [Relation(f"{LIKELY} == keep")]),
    },
    lines=[
        Sentence(
            "A place gets its likeliest edit where that is likelier than keep and at least {min_probability:g}."
        ),
        *(
            Sentence(
                f"{{hidden}} more stayed, with less than {NEAR:g} for any edit. {words}", given={"why": why}
            )
            for why, words in WHY.items()
        ),
    ],
    columns=[
        DetailColumn("token", "token"),
        *(DetailColumn(tag, "number") for tag in TAGS),
        DetailColumn("instead", "token"),
        DetailColumn("behind", "token"),
        DetailColumn("edit", "text"),
        DetailColumn("outcome", "text"),
    ],
    values=[
        *(DetailColumn(name, "number") for name in ("index", "passes", "changed", "given", "room")),
        DetailColumn("end", "token"),
        DetailColumn("why", "text"),
    ],
    relations=[
        Relation("keep + delete + replace + insert == 1", 1e-4),
        *(Relation(f"{tag} >= 0") for tag in TAGS),
        Relation("delete == 0", given={"k": 1}),  # the prompt stays
        Relation("replace == 0", given={"k": 1}),
    ],
    listed=f"max(holds, delete, replace, insert) >= {NEAR:g}",
    check="edits",
    counted="passes that edit",
)


@dataclass
class _Pass:
    """One pass over a draft: for each place, the probabilities of the four tags and the tokens that would replace and follow
    it.
    """

    tokens: list[int]
    p: list[list[float]]
    words: list[list[int]]


@component
class EditTags(Strategy):
    """Correct a draft by parallel edits.

    A pass reads prompt and draft and tags every token: keep, delete, replace by w, or insert w behind it. It also decides
    whether to insert a token before the first. All edits are applied at once, and the next pass reads the result. This ends
    when a pass changes nothing (a right text takes one pass), gives a text that was read before, or is the last of
    `max_rounds`. The draft comes from the settings, or the model writes it: all places of a block in one pass, so that they
    know nothing of each other. The last draft is emitted. Blocks follow each other up to a token that ends the text. A block is
    one step of the trace.

    Each token of the draft has two masks, one in its place that does not see it, and one behind it: 3 n + 1 rows for n tokens.
    The head `edit` reads the states of all rows and gives the tag. The word of an edit comes from the mask's row, corrected by
    the head, through the model's own unembedding.

    Differences from the authors' code: tag and word are two choices; theirs is one softmax over all edits. A word is any single
    token; they take common words and pairs. There are no edits of word endings, and no list of deletable words. The model is
    not trained with the head, so the head reads more than theirs. Positions are whole numbers, so the mask behind a token has
    the position of the next one; theirs is halfway. `min_probability`, and taking the last draft of a cycle, are ours. The
    shipped head was trained on whole answers to questions on lists. It knows nothing of other texts, or of blocks that end
    within an answer.
    """

    title = "Parallel iterative edits"
    source = (
        "PIE: Awasthi et al. 2019, arXiv:1910.02893, sections 2 and 3; "
        "awasthiabhijeet/PIE, word_edit_model.py, apply_opcode.py"
    )
    uses = frozenset({"sampler"})
    sides = "both"
    lossless = False
    changes = "tokens of a draft are changed side by side"
    details: ClassVar = {"edits": EDITS}

    max_rounds: int = param(
        4, low=1, high=64, unit="passes", help="maximum number of edit passes over a draft"
    )
    min_probability: float = param(
        0.0, low=0.0, high=1.01, step=0.01, help="minimum probability of an edit; above 1: no edit is made"
    )
    block: int = param(
        32, low=1, high=4096, unit="tokens", help="number of tokens that the model drafts at once"
    )
    draft: str = param(
        "",
        lines=True,
        most=4096,
        help="text to edit first (ids for a model without a tokenizer); empty: the model's own draft",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        untrained = missing_reason(EditTagger.kind, spec, "the strategy masked")
        return (
            mask_fill_conflict(self.name, spec)
            or untrained
            or sampler_order_conflict(self.name, method.sampler)
        )

    def prefill(self, s: State) -> None:
        """Do nothing: each pass reads prompt and draft together."""

    def begin(self, s: State) -> None:
        s.scratch = cast(EditTagger, s.target.decoder.heads[EditTagger.kind])
        s.target.truncate(0)

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        given = ids_of(s, self.draft) if self.draft.strip() and len(s.tokens) == s.prompt else []
        text, end = self._split_at_end(given, s.stop.tokens) if given else self._write_draft(s)
        if given and end is None:
            end = min(s.stop.tokens, default=None)
        room = s.remaining_tokens
        text = text[:room]
        passes: list[_Pass] = []
        seen: list[list[int]] = []
        why = None
        drafted = clock.mark()
        while why is None:
            passes.append(one := self._tag_draft(s, text, end))
            seen.append(text)
            edited = apply_tags(text, place_tags(one.p, self.min_probability), one.words)
            text, why = next_draft(text, edited, room, end, seen, self.max_rounds)
        verified = clock.mark()
        due = text if end is None else [*text, end]
        count, reason = s.cut(due)
        s.tokens += due[:count]
        s.chance.forget(len(s.tokens))
        details = self._details(passes, {"given": int(bool(given)), "room": room, "end": end, "why": why})
        return plain_move(s, due[:count], reason, started, verified, drafted=drafted, details=details)

    def _details(self, passes: list[_Pass], shared: dict[str, Any]) -> list[TallyDetail]:
        """One tally per pass. shared: values common to all of them"""
        details = []
        for index, one in enumerate(passes, 1):
            likely = likely_edits(one.p)
            columns: dict[str, list[Any]] = {"token": [None, *one.tokens]}
            columns |= zip(TAGS, map(list, zip(*one.p, strict=True)), strict=True)
            columns["instead"], columns["behind"] = map(list, zip(*one.words, strict=True))
            columns["edit"] = [TAGS[x] for x in likely]
            columns["outcome"] = [
                edit_outcome(row[x], row[KEEP], self.min_probability)
                for row, x in zip(one.p, likely, strict=True)
            ]
            details.append(TallyDetail("edits", columns, {"index": index, "passes": len(passes)}))
        changed = sum(detail.columns["outcome"].count("made") for detail in details)
        for detail in details:
            detail.values |= {"changed": changed, **shared}
        return details

    @staticmethod
    def _split_at_end(ids: list[int], ends: frozenset[int]) -> tuple[list[int], int | None]:
        """The ids before the first token that ends a text, and that token."""
        at = next((i for i, x in enumerate(ids) if x in ends), None)
        return (ids, None) if at is None else (ids[:at], ids[at])

    def _write_draft(self, s: State) -> tuple[list[int], int | None]:
        """The sampler's token at each place of a block, from one pass over masks for the whole block."""
        mask, start = s.target.decoder.spec.mask_token, len(s.tokens)
        assert mask is not None, "a model without a mask token was refused"
        places = [*range(start, start + min(self.block, s.remaining_tokens))]
        feed = Feed.causal_chain(
            [*s.tokens, *[mask] * s.remaining_tokens], 0, s.target.decoder.device, logits=places
        )
        tokens, _ = draw_candidates(s, places, self._mask_ids(s.target.forward(feed, "canvas")[0], [mask]))
        s.target.rollback()
        return self._split_at_end(tokens.tolist(), s.stop.tokens)

    def _tag_draft(self, s: State, text: list[int], end: int | None) -> _Pass:
        """Run one pass over a draft."""
        decoder = s.target.decoder
        head = cast(EditTagger, s.scratch)
        lane = s.target
        mask, layer = decoder.spec.mask_token, head.shape["layer"]
        assert mask is not None, "a model without a mask token was refused"
        at = EditRows(len(s.tokens), len(text), end is not None)
        whole = [*s.tokens, *text, *([] if end is None else [end])]
        feed, asked = at.feed(torch.tensor([whole], device=decoder.device), mask), lane.needs
        lane.set_needs(asked | Needs(hidden=frozenset({layer, "final"})))
        logits = lane.forward(feed, "canvas")
        assert lane.probe is not None
        hidden = lane.probe.hidden
        lane.rollback()
        lane.set_needs(asked)
        with torch.inference_mode():
            scores = at.scores(feed.tokens, logits)
            tags, features = head(decoder.embed_rows(feed), hidden[layer], hidden["final"], scores, at)
            corrected = require_finite(decoder.unembed(features[:, 0]), f"the head {head.kind}")
            words = self._mask_ids(corrected, [mask, *s.stop.tokens]).argmax(-1).T.tolist()
            p = tags[0].double().softmax(-1).tolist()
        return _Pass(text, p, words)

    @staticmethod
    def _mask_ids(logits: Tensor, ids: list[int]) -> Tensor:
        """logits float [..., V] with minus infinity for these ids."""
        there = [x for x in ids if x < logits.shape[-1]]
        return logits.index_fill(-1, torch.tensor(there, device=logits.device), -torch.inf)
