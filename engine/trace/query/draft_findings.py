"""Findings on a draft: causes with titles and what to check, thresholds, and where figures change, for whoever names causes.

The draft doctor names them with both models at hand (`engine/draft_doctor/signatures.py`), a report from recorded runs alone
(`lab/reports/trace_signatures.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

LEAST_GAIN = 0.04  # of the overlap that names a cause
LEAST_Z = 3.0  # standard errors of a difference between classes of places
SURE = 0.9  # probability from which a guess is sure
OFTEN = 0.1  # share of the guesses that must be sure before they speak for a fault
REFUSED = 0.01  # probability of the target below which a sure guess is plainly wrong
HEALTHY = 0.6  # overlap from which a draft without a fault is called healthy
# factor of the logits from which a draft is called too sharp or too flat for its divergence alone
SCALE = 1.67
LESS_KL = 1 / 3  # share of the divergence that this factor takes away
GAP = 0.3  # of the overlap between a class of tokens and the others
WEAKNESS = 0.3  # certainty of a gap that is no fault
LEAST_PLACES = 20  # of a class, or on either side of a cliff

CHECKS: dict[str, tuple[str, str]] = {
    "not_finite": (
        "the draft's logits are no numbers",
        "Run the draft in float32 or bfloat16; float16 overflows where activations are large.",
    ),
    "output_ids": (
        "the ids that the draft writes are moved",
        "Check the draft's output ids: added tokens, padding rows, the offset of a draft vocabulary.",
    ),
    "draft_vocabulary": (
        "the draft vocabulary is moved",
        "Check d2t: it holds target id minus draft id, and one row too many or too few moves all behind it.",
    ),
    "inputs": (
        "the head gets embedding and state in the wrong order",
        "Check the order of the two halves in front of the head's first matrix.",
    ),
    "norms": (
        "the head was trained with another norm",
        "Check norm_before_residual in the head's config: if it is absent, libraries differ in what they take.",
    ),
    "other_target": (
        "the head was trained on other weights of the target",
        "Load the target that the head was trained on, or train the head again on the weights that are served.",
    ),
    "tokenizer": (
        "both tokenizers split texts in different ways",
        "Compare tokenizer.json of both, merges above all; give the draft the target's, and train it with that.",
    ),
    "stale_cache": (
        "the draft's cache keeps what was refused",
        "Check what is dropped from the draft's cache after a refusal, and which positions the next tokens get.",
    ),
    "layers": (
        "the head reads states of the wrong layers",
        "Check the layer ids of the head's config: some count the input of a layer, others its output.",
    ),
    "input_ids": (
        "the ids that the draft reads are moved",
        "Check the embedding table of the draft: a row too many or too few at its front.",
    ),
    "all_ids": (
        "the draft's vocabulary is moved, embedding and head alike",
        "Check that both models use one tokenizer, and that no row was added in front of the draft's tables.",
    ),
    "place_shift": (
        "the draft guesses another place",
        "Check which position the draft's output belongs to: labels shifted twice, a root fed twice, or a missing token.",
    ),
    "temperature": (
        "the draft's distribution is too sharp or too flat",
        "Scale the draft's logits or its temperature as fitted; check a logit scale or cap that one side lacks.",
    ),
    "rope_base": (
        "rotary positions have another base",
        "Check rope_theta in the draft's config.json, and the key under which your server reads it.",
    ),
    "rope_scaling": (
        "rotary positions have another scaling",
        "Check rope_scaling (rope_parameters) in the draft's config.json: its kind and factor.",
    ),
    "window": (
        "the draft does not see far enough back",
        "Check sliding_window and layer_types in the draft's config.json, and the window of its cache.",
    ),
    "context": (
        "the draft breaks behind a position",
        "Check max_position_embeddings and the length of the draft's cache; let it read only the newest tokens.",
    ),
    "missing_layers": (
        "the draft lacks its last layers",
        "Check num_hidden_layers, and that the loader reads every layer of the file.",
    ),
    "first_token": (
        "the draft misses the first token of the text",
        "Check that the draft gets the beginning-of-text token, once, as the target does.",
    ),
    "template": (
        "the chat template does not reach the draft",
        "Compare the ids of the rendered prompt that both models get: marks left out or as text, another template.",
    ),
    "weak_template": (
        "the draft is weaker with the chat template, and nothing is broken",
        "Train it on chats that the target answered, through its template.",
    ),
    "wiring": (
        "the draft is sure and wrong",
        "Check what goes into the draft: weights of the right layer and model, order of inputs, norms.",
    ),
    "tokens": (
        "the draft is bad at one class of tokens only",
        "Compare both tokenizers on such pieces; if they agree, the draft's training texts lack them.",
    ),
    "first_place": (
        "the draft's first token is worse than its later ones",
        "Check what the draft starts from: the state or the token of the root, and its position.",
    ),
    "later_places": (
        "the draft's later tokens are much worse than its first one",
        "Check what the draft reads of its own guesses: positions, cache, the state fed back. Heads lose much here by nature.",
    ),
    "long_prompts": (
        "the draft is bad behind long prompts only",
        "Check max_position_embeddings, sliding_window and the length of the draft's cache.",
    ),
    "independent": (
        "draft and target agree, and their tokens are drawn independently",
        "Nothing is broken: draft greedily (draft_temperature = 0), or verify with the draft's distribution.",
    ),
    "unrelated": (
        "the draft's guesses have little to do with the target",
        "Run the doctor with both models: moved input ids, positions, inputs of a head and another model look alike.",
    ),
    "weak": (
        "the draft is weak everywhere, and nothing is broken",
        "Train it on the target's own answers, or choose a larger draft; no setting repairs this.",
    ),
    "healthy": (
        "nothing is wrong",
        "Choose draft length and tree by the report: where drafts are refused, the models differ.",
    ),
}


@dataclass(frozen=True)
class DraftFinding:
    """A cause. certainty: in [0, 1];  evidence: one sentence with its figures;  check: what to look at;  figures: the same"""

    cause: str
    title: str
    certainty: float
    evidence: str
    check: str
    figures: Mapping[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def make_finding(cause: str, certainty: float, evidence: str, **figures: float) -> DraftFinding:
    """A finding with the title and the advice of its cause."""
    title, check = CHECKS[cause]
    return DraftFinding(cause, title, round(min(1.0, max(0.0, certainty)), 3), evidence, check, figures)


def certainty_of(z: float, share: float) -> float:
    """How sure a difference of z standard errors makes that it explains a `share` of the loss."""
    return float((1 - math.exp(-(z**2) / 8)) * math.sqrt(min(1.0, max(0.0, share))))


class MeanGap(NamedTuple):
    """Two means that differ: first minus second, its z, and both."""

    difference: float
    z: float
    first: float
    second: float


def compare_means(first: np.ndarray, second: np.ndarray) -> MeanGap | None:
    """How much higher the mean of float [N] is than that of float [M]; None: too few places of one of them."""
    if min(len(first), len(second)) < LEAST_PLACES:
        return None
    error = max(float(np.sqrt(first.var() / len(first) + second.var() / len(second))), 1e-9)
    difference = float(first.mean() - second.mean())
    return MeanGap(difference, difference / error, float(first.mean()), float(second.mean()))


def find_wiring(q: np.ndarray, p: np.ndarray) -> Iterator[DraftFinding]:
    """Guesses that the draft is sure of and the target never says. q, p: float [N], what both give each guess."""
    sure = q >= SURE
    count, share = int(sure.sum()), float((sure & (p < REFUSED)).sum() / max(1, sure.sum()))
    if count >= max(LEAST_PLACES / 2, OFTEN * len(sure)) and share >= 0.5:
        yield make_finding(
            "wiring",
            0.5 * share,
            f"Of {count} guesses with at least {SURE:.0%}, {share:.0%} get less than {REFUSED:.0%} from the target.",
            sure=count,
            share=share,
        )


def find_change(values: np.ndarray, index: np.ndarray) -> tuple[int, float, float, float] | None:
    """The position at which mean values drop most clearly: it, the mean before, the mean behind, and the drop's z.

    values, index: float and int [N]. The position with the largest z; None where too few places lie on one side of all.
    """
    order = np.argsort(index, kind="stable")
    x, at = values[order].astype(np.float64), index[order]
    n = np.arange(1, len(x))
    sums, squares = np.cumsum(x), np.cumsum(x**2)
    before, behind = sums[:-1] / n, (sums[-1] - sums[:-1]) / (len(x) - n)
    spread = squares[-1] - n * before**2 - (len(x) - n) * behind**2
    error = np.sqrt(np.maximum(spread, 1e-12) / max(1, len(x) - 2) * (1 / n + 1 / (len(x) - n)))
    z = (before - behind) / np.maximum(error, 1e-9)
    z[(n < LEAST_PLACES) | (len(x) - n < LEAST_PLACES) | (at[1:] == at[:-1])] = -np.inf
    if not len(z) or not np.isfinite(z.max()):
        return None
    k = int(z.argmax())
    return int(at[k + 1]), float(before[k]), float(behind[k]), float(z[k])
