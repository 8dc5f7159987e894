"""SWIFT's draft beside ours: the same prefix, the same layers left out, the same draws; where does the chain end?

    python benchmarks/fidelity/swift.py CHECKOUT        # of hemingkx/SWIFT

Before each of our steps their `swift_draft` drafts from the same text, with our decoder in the place of theirs. Under a sampler
that draws, its `sample` is ours, so that both draw with the same uniforms: what is compared is the chain and where it stops.
The last column says how many chains would have ended elsewhere by the probability after the sampler. Under a greedy sampler the
number of siblings is compared as well (`get_choices_list`).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import nullcontext
from typing import Any, cast

import torch
from official import Code, Texts, main, parser, told, watched
from torch import Tensor

from decodescope.engine import Method, Session
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.drafters.own_layers.layer_skip import LayerSkip
from decodescope.engine.model.forward.feed import Feed

STOP, LENGTH = 0.8, 25
SAMPLERS: dict[str, tuple[list[str], dict[str, dict[str, Any]]]] = {
    "greedy": (["greedy"], {}),
    "T = 0.5": (["temperature"], {"temperature": {"temperature": 0.5}}),
    "T = 1": (["temperature"], {"temperature": {"temperature": 1.0}}),
    "T = 1, top-k 3": (["top_k", "temperature"], {"top_k": {"k": 3}, "temperature": {"temperature": 1.0}}),
    "T = 1.5, top-p 0.8": (
        ["temperature", "top_p"],
        {"temperature": {"temperature": 1.5}, "top_p": {"p": 0.8}},
    ),
}


class Theirs:
    """Their model's parts as `swift_draft` calls them: one row at a time on top of our lane's pending ones."""

    def __init__(self, session: Session):
        drafter = cast(LayerSkip, session.drafter)
        self._lane, self._skip = session.target, drafter.skip_set(session.target.decoder.spec)
        self._chance, self._context, self._at = (
            session.chance.copy(),
            session.context,
            session.context.position,
        )

    def lm_head(self, logits: Tensor) -> Tensor:
        """Nothing is left to do: `model` went all the way."""
        return logits

    def self_draft(self) -> nullcontext[None]:
        """Leaving layers out: every pass here does."""
        return nullcontext()

    def model(self, input_ids: Tensor, **_: Any) -> tuple[Tensor]:
        """The logits [1, 1, V] after the fed token, which `lm_head` hands on."""
        feed = Feed.causal_chain(input_ids[0].tolist(), self._at - 1)
        self._at += 1
        return (self._lane.forward(feed, "draft", skip=self._skip),)

    def sample(self, logits: Tensor, processor: Any, k: int) -> tuple[Tensor, Tensor, None]:
        """The token that we draw with the same uniform, alone."""
        law = self._context.law(logits[0, 0], self._context.state)
        drawn = self._chance.draw(law, self._at - 1, "draft")
        return torch.tensor([[drawn.token]]), law[drawn.token].view(1, 1), None


def of_theirs(code: Code, session: Session) -> tuple[list[int], list[float]]:
    """Their chain, and how sure they were of each of its tokens."""
    session.target.rollback()
    model = Theirs(session)
    (draft,) = code.take(
        "swift_draft", torch=torch, TOPK=10, clone_past_key_values=lambda *_: None, sample=model.sample
    )
    processor = None if session.method.sampler.greedy else object()
    given = dict(
        max_new_tokens=1 << 30, max_step_draft=LENGTH, logits_processor=processor, stop_threshold=STOP
    )
    root = torch.tensor([[session.tokens[-1]]])
    (tokens, *_), sure = draft(
        model, root, past_key_values_data=[], current_length_data=torch.zeros(1), **given
    )
    session.target.rollback()
    return tokens.view(len(sure), -1)[:, 0].tolist(), sure


def chain_of(draft: Draft) -> list[int]:
    """The nodes of the chain, without its siblings."""
    return [node for node in range(len(draft)) if node == 0 or draft.parents[node] != draft.parents[node - 1]]


@torch.inference_mode()
def compare(args: argparse.Namespace) -> None:
    """Draft with both before every step, and print."""
    code = Code(args.checkout, "model/swift/utils.py")
    (choices,) = code.take("get_choices_list")
    texts, rows = Texts(args), []
    for name, (samplers, knobs) in SAMPLERS.items():
        settings = {
            "max_draft_tokens": LENGTH,
            "min_probability": STOP,
            "siblings": name == "greedy",
            "skip_ratio": args.ratio,
        }
        count: Counter[str] = Counter()
        method = Method.from_names(
            {"drafter": "layer_skip", "sampler": samplers}, {"drafter": settings, **knobs}
        )
        for session in texts.sessions(method):
            seen = watched(session)
            while session.context.room >= LENGTH:  # the text's end does not cut the draft
                due, sure = of_theirs(code, session)
                session.step()
                count.update(beside(seen.pop().draft, due, sure, choices if settings["siblings"] else None))
        cells = ("steps", "tokens", "chain", "siblings", "elsewhere")
        rows.append([name, *(count[x] for x in cells)])
    head = (
        "sampler",
        "drafts",
        "tokens drafted",
        "same chain",
        "same siblings",
        "elsewhere by the drawn distribution",
    )
    told(code, head, rows)


def beside(draft: Draft, due: list[int], sure: list[float], choices: Any) -> Counter[str]:
    """Our draft and theirs."""
    chain = chain_of(draft)
    tokens = [draft.tokens[node] for node in chain]
    widths = [draft.parents.count(draft.parents[node]) for node in chain]
    made = Counter(steps=1, tokens=len(due), chain=tokens == due)
    if choices is not None:
        made["siblings"] += widths == [len(choices([x])) for x in sure]
    if draft.q is not None and draft.q_row is not None:
        drawn = [
            float(draft.q[row, token]) < STOP for row, token in zip(draft.q_row, draft.tokens, strict=True)
        ]
        made["elsewhere"] += drawn != [x < STOP for x in sure]
    return made


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument(
        "--ratio", type=float, default=0.25, help="share of the inner sub-layers left out (default: 0.25)"
    )
    sys.exit(main(compare, arguments))
