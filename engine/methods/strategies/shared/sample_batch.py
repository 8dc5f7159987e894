"""Sample batch: several texts of one prompt, drawn together with one pass per token; the prompt is held and read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import torch

from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.state import State
from decodescope.engine.decoding.shared.token_draw import draw_token
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.branches import branch_cache
from decodescope.engine.model.stores.shared_prefix import share_prefix
from decodescope.engine.model.stores.tree import TreePlan
from decodescope.engine.trace.details.declarations import Sentence, TreeForm
from decodescope.engine.trace.details.shapes import TreeDetail

from .hypotheses import COLUMNS, ENDED, EXACT, FIGURES, KEPT, SAYS, WORTH, hypotheses_record

SAMPLED_TEXTS = TreeForm(
    title="Texts drawn side by side",
    noun="hypothesis",
    nouns="hypotheses",
    says=SAYS,
    columns=COLUMNS,
    outcomes={"kept": KEPT, "ended": ENDED},
    number="score",
    worth=WORTH,
    exact=EXACT,
    figures=FIGURES,
    card=[Sentence("Each text is drawn by itself; the first is the run's.")],
    lines=[Sentence("Each text draws its next token by itself; none of them sees another.")],
    rule="side by side",
    won="The text",
    overview=False,
    settles_at_end=True,
    batch=True,
)


@dataclass(eq=False)
class Sample:
    """A text behind the prompt: the sampler's state, its random numbers, its tokens, the sum of their log-probabilities, and
    whether it has ended with a token or text that ends texts.
    """

    state: Any
    chance: Chance
    tokens: list[int] = field(default_factory=list)
    score: float = 0.0
    stopped: bool = False


@dataclass
class SampleBatch:
    """- every: all texts, by number; text i uses the random numbers of a run with the seed s + i, so it is that run's text
    - alive: the unfinished texts, in the order of the batch
    """

    every: list[Sample]
    alive: list[Sample]

    @classmethod
    def start(cls, s: State, count: int, plan: str = "prefix", block: int = 128) -> SampleBatch:
        """Start `count` empty texts. plan: how passes read prompt and texts, "prefix" or a plan of a tree."""
        s.target.set_needs(Needs())
        if plan == "prefix":
            share_prefix(s.target.cache, count)
        else:
            branch_cache(s.target.cache, cast(TreePlan, plan), block)
            s.target.cache.reorder(torch.zeros(count, dtype=torch.int64))
        every = [
            Sample(s.sampler_state, s.chance if i == 0 else Chance(s.chance.seed + i)) for i in range(count)
        ]
        return cls(every, list(every))

    @property
    def token_count(self) -> int:
        """The number of tokens of the unfinished texts."""
        return len(self.alive[0].tokens)

    def draw_round(self, s: State) -> tuple[TreeDetail, Any]:
        """Draw a token of each unfinished text; return the record, and the mark of the target's executor after the pass.

        A text that has ended leaves the batch, and its entries are freed.
        """
        device = s.target.decoder.device
        written = self.token_count
        position = len(s.tokens) + written
        roots = [sample.tokens[-1] if written else s.tokens[-1] for sample in self.alive]
        places = torch.full((len(roots), 1), position - 1, device=device)
        feed = Feed(torch.tensor(roots, device=device)[:, None], places, highest=position - 1)
        logits = s.target.forward(feed)[:, 0]  # [B, V]
        verified = s.target.executor.mark()
        s.target.commit([0])
        sure = logits.double().log_softmax(-1)
        going: list[int] = []
        ended: list[int] = []
        for i, (sample, best) in enumerate(zip(self.alive, logits.argmax(-1).tolist(), strict=True)):
            token, sample.state = draw_token(
                logits[i : i + 1], best, s.sampler, sample.state, sample.chance, position
            )
            sample.stopped = s.stop.find_stop(sample.tokens, [token]) is not None
            sample.tokens.append(token)
            sample.score += float(sure[i, token])
            (ended if sample.stopped else going).append(i)
        rows = [(i, sample.tokens[-1], sample.score) for i, sample in enumerate(self.alive)]
        record = hypotheses_record("sampled_texts", [rows[i] for i in going], [rows[i] for i in ended])
        if ended and going:
            s.target.cache.reorder(torch.tensor(going, device=device))
        self.alive = [self.alive[i] for i in going]
        return record, verified
