"""Grammar-aligned decoding (ASAp): each token of a grammar is weighed by the share of its continuations that are allowed."""

from __future__ import annotations

from math import exp
from typing import Any, ClassVar, cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.records.events import EndReason

from .shared.prefixes import GrammarPrefixes, split_constraints

SHOWN = 8  # recorded tokens of a distribution
WORDS = [Sentence("{count(tokens)} tokens"), Sentence("cut at the limit", given={"ended": False})]
DRAWN = TallyForm(
    title="A text drawn",
    number="ln p, the model's",
    value="logp",
    says=[
        Sentence("text {first + rows} of {samples} drawn, the run's text", where="first + rows == samples"),
        Sentence("text {first + rows} of {samples} drawn, the last is the run's"),
    ],
    row=[Sentence("{tokens}")],
    outcomes={
        "chosen": Outcome(
            True,
            "",
            [Sentence("the run's text"), *WORDS],
            [Relation("first + k == samples"), Relation("emitted == count(tokens)")],
        ),
        "drawn": Outcome(
            True,
            "",
            [Sentence("drawn"), *WORDS],
            [Relation("first + k != samples"), Relation("emitted == 0")],
        ),
    },
    lines=[
        Sentence(
            "By all texts so far the grammar has at most {exp(bound)} of the model's mass.",
            where="bound >= -300",
        ),
        Sentence(
            "By all texts so far the grammar has at most exp({bound:1}) of the model's mass.",
            where="max(bound, -300) != bound",
        ),
        Sentence(
            "A token is weighed by what of its mass may still be allowed behind it, as far as that was read."
        ),
    ],
    columns=[
        DetailColumn("tokens", "tokens"),
        DetailColumn("logp", "number"),
        DetailColumn("ended", "number"),
        DetailColumn("outcome", "text"),
    ],
    values=[DetailColumn("first", "number"), DetailColumn("bound", "number")],
    order=["drawn|chosen"],
    relations=[Relation("logp <= 0"), Relation("count(tokens) >= 1")],
    totals=[Relation("first >= 0"), Relation("bound <= 0")],
    emits="tokens",
    emitting=["chosen"],
    check="drawn_texts",
)


@component
class Aligned(Strategy):
    """Sample texts of a grammar from the model's own distribution of whole texts, given that the grammar allows them, P(w) /
    P(L). A grammar that only removes tokens (the sampler `grammar`) does not do this. It keeps the model's token weights
    whatever follows: a likely token with hardly any allowed continuation is taken as often as before. For P(w) / P(L), a token
    v behind u has the weight p(v|u) c(uv). c(u) is the probability that the model's continuation of u is allowed to its end.

    c is not known, so it is estimated. `samples` texts are drawn one after another, and a trie keeps every prefix that was
    read, with p of all allowed next tokens. c~ = 1 behind an unread prefix, c~(u) = sum_v p(v|u) c~(uv) behind a read one, and
    v is drawn with p(v|u) c~(uv). So c~ falls with every text, and never below c. The run's text is the last one.

    It is exact only in the limit: once all prefixes that the grammar allows were read, the next text has the distribution P(w)
    / P(L). Before that no text has it, and the distance need not fall from one text to the next. The first text has the
    distribution of the sampler `grammar`, and later ones may be further away. A grammar with many prefixes is never fully
    explored. Text i uses the random numbers of a run with the seed s + i, so the first is that run's text under the sampler
    alone.

    A step is one text. Prefixes in the trie are not read token by token, but in one pass with the first unknown prefix. A fully
    known text takes no pass. All texts continue behind one cache of the prompt, and their own entries are dropped at their end.
    The trie holds a logit for each token that may follow a prefix: 4 bytes in float32. So a text of 200 tokens with 5,000
    allowed tokens behind each takes 4 MB.

    A text cut at the limit counts as allowed, as in the authors' code. p is the distribution of all stages of the sampler
    except those that constrain. None of them may remove tokens, because a cut before or after the weights gives another
    distribution.
    """

    title = "Grammar-aligned decoding (ASAp)"
    source = (
        "Park et al. 2024, arXiv:2405.21047, section 3; ebmoon/transformers-GAD, transformers_gad/oracle/oracle_trie.py and "
        "transformers_gad/generation/logits_process.py"
    )
    uses = frozenset({"prompt_compression", "sampler"})
    lossless = False
    changes = "tokens are weighed by what the grammar allows behind them"
    details: ClassVar = {"drawn_texts": DRAWN}
    tells: ClassVar[dict[str, Note]] = {
        "mass": Note("series", "mass of the grammar", "", "at most, by what was seen: c~ of the prompt"),
        "log_mass": Note(
            "series", "its logarithm", "nats", "of c~ of the prompt, which may be less than any number"
        ),
        "read": Note("series", "prefixes read", "tokens", "that no text before had"),
        "prefixes": Note("series", "prefixes known", "prefixes", "in the trie behind the text"),
        "grammar": Note(
            "grid", "by the grammar alone", "", "law of the first choice, of its likeliest tokens"
        ),
        "aligned": Note("grid", "aligned", "", "the same law, weighed by c~ behind each token"),
    }

    samples: int = param(
        8,
        low=1,
        high=256,
        unit="texts",
        help="number of texts drawn one after another; the last one is the run's text",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        stages = method.sampler.in_order
        if not any(stage.constrains for stage in stages):
            return "aligned weighs what a grammar allows, and no sampler constrains the text: choose grammar as the first one."
        for stage in stages:
            if (stage.cuts or stage.greedy) and not stage.constrains:
                return (
                    f"{stage.name} takes out tokens that the grammar allows, and aligned weighs them all: leave {stage.name} "
                    "out, or choose temperature in its place."
                )
        return None

    def begin(self, s: State) -> None:
        s.target.set_needs(Needs())
        s.scratch = GrammarPrefixes()

    def step(self, s: State) -> Move:
        seen: GrammarPrefixes = s.scratch
        clock = s.target.executor
        started, before = clock.mark(), len(seen)
        chance = s.chance if seen.texts == 0 else Chance(s.chance.seed + seen.texts)
        tokens, logp, end, number = self._draw_text(s, seen, chance)
        verified = clock.mark()
        seen.update_bounds(number)
        s.target.truncate(s.prompt - 1)
        s.target.cache.shrink()
        seen.texts += 1
        last = seen.texts == self.samples
        bound = min(0.0, seen.bounds[0])
        columns: dict[str, list[Any]] = {"tokens": [tokens], "logp": [logp], "ended": [end == "stop_token"]}
        columns["outcome"] = ["chosen" if last else "drawn"]
        text = TallyDetail("drawn_texts", columns, {"first": seen.texts - 1, "bound": bound})
        notes = self._notes(s, seen, len(seen) - before)
        emitted = list(tokens) if last else []
        s.tokens += emitted
        more = {"details": [text], "notes": notes, "sampler_state": s.sampler_state}
        return plain_move(s, emitted, end if last else None, started, verified, **more)

    def _draw_text(
        self, s: State, seen: GrammarPrefixes, chance: Chance
    ) -> tuple[list[int], float, EndReason | None, int]:
        """Draw one text.

        Returns its tokens, the logarithm of the model's probability, why it ends, and the number of its longest known prefix,
        which is all of it except the last token.
        """
        between, end = s.chunk_callback(s.target.name), cast(EndReason | None, None)
        tokens = list[int]()
        logp = 0.0
        number = -1
        above = -1
        place = -1
        while end is None:
            between(len(tokens), s.remaining_tokens)
            known = seen.find(above, place)
            number = self._read(s, seen, tokens, above, place) if known is None else known
            weights = seen.weighted_log_probs(number)
            place = chance.draw(weights.softmax(-1), len(s.tokens) + len(tokens)).token
            above, token = number, int(seen.every[number].ids[place])
            logp += float(seen.token_log_probs(number)[place])
            end = (
                "stop_token"
                if s.stop.find_stop(tokens, [token]) is not None
                else s.limit_reason(len(tokens) + 1)
            )
            tokens.append(token)
        return tokens, min(0.0, logp), end, number

    def _read(self, s: State, seen: GrammarPrefixes, tokens: list[int], above: int, place: int) -> int:
        """Read the part of the text that the cache lacks, enter its allowed next tokens in the trie, and return its number."""
        whole = [*s.tokens, *tokens]
        at = len(s.target.tokens)
        logits = s.target.forward(Feed.causal_chain(whole[at:], at, s.target.decoder.device, logits="last"))[
            0, -1
        ]
        s.target.commit([*range(len(whole) - at)])
        stages = s.sampler.in_order
        if above < 0:
            states = [stage.start(list(s.tokens), s.target.decoder.vocab, s.alphabet) for stage in stages]
        else:
            # a stage that reads the logits removes tokens, and is refused
            pairs = zip(stages, seen.every[above].states, strict=True)
            states = [stage.update(state, tokens[-1], logits) for stage, state in pairs]
        return seen.add(*split_constraints(stages, states, logits), states, above, place)

    def _notes(self, s: State, seen: GrammarPrefixes, read: int) -> dict[str, Any]:
        bound, rows = min(0.0, seen.bounds[0]), seen.first_choice(SHOWN)
        names = [_token_name(s, token) for token, _, _ in rows]
        return {
            "mass": exp(bound),
            "log_mass": bound,
            "read": read,
            "prefixes": len(seen),
            "grammar": {name: p for name, (_, p, _) in zip(names, rows, strict=True)},
            "aligned": {name: q for name, (_, _, q) in zip(names, rows, strict=True)},
        }


def _token_name(s: State, token: int) -> str:
    piece = None if s.piece is None else s.piece(token)
    return f"{token} {piece}" if isinstance(piece, str) else str(token)
