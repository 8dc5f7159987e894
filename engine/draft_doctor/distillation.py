"""Distillation: the acceptance that a short training on these prompts would bring, measured on texts that it did not see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.methods.drafters.shared.learner import Learner
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import EngineFault

from .experiments import compare_overlaps
from .places import read_overlaps
from .readers import ModelReader
from .texts import DoctorText

RATES = (1e-4, 1e-3)  # of AdamW; the one that is better on the texts that were learned from is taken


@dataclass(frozen=True)
class DistillationGain:
    """The overlap on texts before, and after one gradient step for each text of the other half.

    error: standard error of the difference of the texts' means, wider for few texts
    steps: gradient steps of each half;  rates: learning rate of each half;  texts: all that were measured
    """

    before: float
    after: float
    error: float
    steps: tuple[int, int]
    rates: tuple[float, float]
    texts: int

    @property
    def sentence(self) -> str:
        """The gain in words."""
        sure = abs(self.after - self.before) > 2 * self.error
        doubt = "" if sure else " That is within two standard errors: these texts cannot tell."
        return (
            f"After one gradient step for each text of one half ({self.steps[0]} and {self.steps[1]}), the overlap on the "
            f"other half is {self.after:.1%}; before, it is {self.before:.1%} (standard error of the difference "
            f"{self.error:.1%}, {self.texts} texts).{doubt}"
        )

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "sentence": self.sentence}


def measure_distillation(
    target: ModelReader,
    draft: ModelReader,
    texts: Sequence[DoctorText],
    say: Callable[[str], None] = lambda text: None,
) -> DistillationGain | str:
    """Train a copy of the draft on the answers of one half of the prompts, measure it on the other half, and the other way
    round.

    Training is that of online speculative decoding (Liu et al. 2024, arXiv:2310.07177, section 3) with the forward KL
    divergence, at the places of the answers: a gradient step for each text. All texts of a prompt are in one half, so that none
    is measured by a draft that saw its prompt. The draft itself is never written to.

    A sentence instead where this cannot be measured: fewer than two prompts, a draft that is too large to copy, or one through
    which no gradient is computed.
    """
    halves = _split_by_prompt(texts)
    if not all(halves):
        return "Distillation was not measured: it needs two prompts, one to learn from and one to measure. Give more."
    rows = list[np.ndarray]()
    steps, rates = list[int](), list[float]()
    for number, (seen, held) in enumerate((halves, halves[::-1]), 1):
        say(f"training a copy of the draft on half {number} of the texts")
        try:
            trained = [_train(target, draft.decoder, seen, rate) for rate in RATES]
        except (EngineFault, Refusal) as fault:
            return f"Distillation was not measured: {fault}"
        gains = np.nanmean(read_overlaps(target, [ModelReader(x) for x in trained], seen), axis=1)
        best = int(gains.argmax())
        rows.append(read_overlaps(target, [draft, ModelReader(trained[best])], held))
        steps.append(trained[best].updates)
        rates.append(RATES[best])
    before, after = np.concatenate(rows, axis=1)
    result = compare_overlaps("weak", "a short training on these prompts", before, after)
    return DistillationGain(
        result.before,
        result.after,
        result.error,
        (steps[0], steps[1]),
        (rates[0], rates[1]),
        int((np.isfinite(before) & np.isfinite(after)).sum()),
    )


def _split_by_prompt(texts: Sequence[DoctorText]) -> tuple[list[DoctorText], list[DoctorText]]:
    """Every second prompt, and the others."""
    numbers = {x: i for i, x in enumerate(dict.fromkeys(text.prompt for text in texts))}
    even = [x for x in texts if numbers[x.prompt] % 2 == 0]
    return even, [x for x in texts if numbers[x.prompt] % 2]


def _train(target: ModelReader, draft: Decoder, texts: Sequence[DoctorText], rate: float) -> Learner:
    """A copy of the draft after a step for each text. Raises EngineFault."""
    learner = Learner.from_decoder(draft, rate)
    for text in texts:
        _, logits = target.read(text.ids)
        rows = range(max(0, text.start - 1), len(text.ids) - 1)  # each guesses a token of the answer
        # ids that the draft has no output for are left out of what it learns
        p = logits[rows.start : rows.stop, : learner.usable].softmax(-1)
        learner.learn(text.ids[:-1], 0, rows, p)
    return learner
