"""Does the draft doctor name what is wrong with a draft? `python benchmarks/broken_drafts.py [--only NAME ...]`

A shipped model is the target. A draft is the target with noise in its weights, broken in one way; heads are the shipped ones,
broken in one way. Six more pairs are healthy but weak. The doctor sees the models alone, never how they were made. A row is
right if the first cause is the one that was made, or, for a healthy pair, if none is called broken.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from decodescope.engine import load
from decodescope.engine.bench.draft_doctor.examination import DraftExamination, examine_texts
from decodescope.engine.bench.draft_doctor.texts import write_texts
from decodescope.engine.core.spec import Rope
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import Head, HeadLinear
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.session.load import Model
from decodescope.testing.toys import noisy_decoder

NOISE = 0.3  # of the mean absolute weight
WINDOW = 48  # tokens that a broken draft sees, or positions that it knows
PROMPTS = (
    "Once upon a time there was a polite girl called Greta. One day she found a small key, and",
    "There once was a patient boy named Sven who lived by the sea with his friend Jana. In the morning",
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    return ",
    "Conrad planted an acorn in a cracked bucket and watered it every evening. After two weeks there was",
)
FINE = ("healthy", "weak")


class Case(NamedTuple):
    """A pair. causes: keys of findings that name what was made;  make: the model, and a draft model or the name of its head

    head: a head that the model must have
    """

    name: str
    causes: tuple[str, ...]
    make: Callable[[Model], tuple[Model, Model | str]]
    head: str = ""


class RereadDecoder(Decoder):
    """A model whose feed or logits are changed on the way; the weights are shared."""

    def __init__(self, other: Decoder, reread: Callable[[Callable[[Feed], Tensor], Feed], Tensor]) -> None:
        self.share(other)
        self._change = reread

    def forward(self, feed: Feed, cache: Any = None, *rest: Any, **more: Any) -> Tensor:
        """Logits, by way of the change."""
        return self._change(lambda x: super(RereadDecoder, self).forward(x, cache, *rest, **more), feed)


def make_noisy(model: Model, noise: float = NOISE) -> Decoder:
    """The target with noise, as plain float32 rows."""
    return noisy_decoder(model.decoder.to(dtype=torch.float32), noise)


def wrap_model(model: Model, decoder: Decoder) -> Model:
    """A decoder with the target's tokenizer."""
    return replace(model, name="draft", spec=decoder.spec, decoder=decoder)


def break_model(change: Callable[[Decoder], Decoder]) -> Callable[[Model], tuple[Model, Model]]:
    """A maker: the noisy target, changed."""
    return lambda model: (model, wrap_model(model, change(make_noisy(model))))


def rebuild(draft: Decoder, **parts: Any) -> Decoder:
    """The draft with other parts of `Decoder`'s arguments."""
    names = ("spec", "embed", "layers", "norm", "head")
    return Decoder(**{x: parts.get(x, getattr(draft, x)) for x in names})


def set_rope(draft: Decoder, rope: Rope) -> Decoder:
    """The draft with another rotation."""
    return rebuild(draft, spec=replace(draft.spec, rope=rope))


def break_reading(
    change: Callable[[Callable[[Feed], Tensor], Feed], Tensor],
) -> Callable[[Model], tuple[Model, Model]]:
    """A maker: the noisy target, what it reads or writes changed."""
    return break_model(lambda draft: RereadDecoder(draft, change))


def clamp_positions(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
    """Positions stop where the context ends."""
    return run(replace(feed, positions=feed.positions.clamp(max=WINDOW)))


def drop_first(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
    """The first token never arrives."""
    tokens = feed.tokens[0].tolist()
    logits = run(Feed.causal_chain(tokens[1:], 0, feed.tokens.device))
    return torch.cat([logits[:, :1], logits], 1)


def drop_marks(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
    """The chat marks (ids below 14 in the shipped models) and what names the roles never arrive."""
    tokens = feed.tokens[0]
    kept = tokens >= 14
    if not kept.any():
        return run(feed)
    logits = run(Feed.causal_chain(tokens[kept].tolist(), 0, tokens.device))
    return logits[:, (kept.cumsum(0) - 1).clamp(min=0)]


def delay(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
    """The distribution of the place before: a cache that lacks the newest token."""
    logits = run(feed)
    return torch.cat([logits[:, :1], logits[:, :-1]], 1)


def overflow_layer(draft: Decoder) -> Decoder:
    """A matrix so large that its products leave the type."""
    last = draft.layers[-1]
    return rebuild(
        draft, layers=[*draft.layers[:-1], replace(last, down=last.down * 1e38, gate_up=last.gate_up * 1e4)]
    )


def break_head(kind: str, change: Callable[[Any], Head]) -> Callable[[Model], tuple[Model, str]]:
    """A maker: the target with its head of that kind, changed."""

    def make(model: Model) -> tuple[Model, str]:
        decoder = copy.copy(model.decoder)
        decoder.heads = {
            **model.decoder.heads,
            kind: change(model.decoder.heads[kind].copy_to(dtype=torch.float32)),
        }
        return replace(model, decoder=decoder), kind

    return make


def move_d2t(shift: int) -> Callable[[Model], tuple[Model, str]]:
    """A maker: EAGLE-3 with rows of its own for the draft vocabulary, whose ids are moved."""

    def make(model: Model) -> tuple[Model, str]:
        def change(head: Any) -> Head:
            moved = (head.ids + shift) % len(head.mask)
            table = unpack(model.decoder.head)[head.ids][
                moved.argsort()
            ]  # a head keeps its rows in the order of ids
            words = HeadLinear(table.shape[1], table.shape[0], bias=False)
            words.weight = nn.Parameter(table.float(), requires_grad=False)
            head.words = nn.ModuleList([words])
            head.mask = head.mask.clone()  # a copy of a head shares its tensors
            head.set_draft_vocabulary(moved.tolist())
            return head

        return break_head("eagle3", change)(model)

    return make


def swap_inputs(head: Any) -> Head:
    """EAGLE whose two inputs change places."""
    inner = head.forward
    head.forward = lambda features, embedded, *rest, **more: inner(embedded, features, *rest, **more)
    return head


def shift_layers(head: Any) -> Head:
    """EAGLE-3 that is given the states one layer further on."""
    head.layer_ids = tuple(min(x + 1, 7) for x in head.places(8))
    return head


def shuffle_head(draft: Decoder) -> Decoder:
    """The output rows in an order of chance: the head of another model."""
    order = torch.randperm(len(draft.head), generator=torch.Generator().manual_seed(0))
    return rebuild(draft, head=draft.head[order])


CASES = (
    Case("logits halved", ("temperature",), break_model(lambda x: rebuild(x, norm=x.norm * 0.5))),
    Case("logits doubled", ("temperature",), break_model(lambda x: rebuild(x, norm=x.norm * 2))),
    Case(
        "rope base wrong", ("rope_base",), break_model(lambda x: set_rope(x, replace(x.spec.rope, theta=1e6)))
    ),
    Case(
        "linear scaling wrong",
        ("rope_scaling",),
        break_model(lambda x: set_rope(x, replace(x.spec.rope, kind="linear", factor=4.0))),
    ),
    Case(
        "yarn scaling wrong",
        ("rope_scaling",),
        break_model(
            lambda x: set_rope(
                x, replace(x.spec.rope, kind="yarn", factor=8.0, original_positions=256, amplitude=1.2)
            )
        ),
    ),
    Case("output ids off by one", ("output_ids",), break_model(lambda x: rebuild(x, head=x.head.roll(1, 0)))),
    Case("embedding off by one", ("input_ids",), break_model(lambda x: rebuild(x, embed=x.embed.roll(1, 0)))),
    Case(
        "embedding and head off by one",
        ("all_ids",),
        break_model(lambda x: rebuild(x, embed=x.embed.roll(1, 0), head=x.head.roll(1, 0))),
    ),
    Case("d2t off by one", ("output_ids", "draft_vocabulary"), move_d2t(1), "eagle3"),
    Case("d2t off by a block", ("output_ids", "draft_vocabulary"), move_d2t(64), "eagle3"),
    Case(
        "last layer dropped",
        ("missing_layers",),
        break_model(
            lambda x: rebuild(x, layers=x.layers[:-1], spec=replace(x.spec, n_layers=len(x.layers) - 1))
        ),
    ),
    Case(
        "a window",
        ("window",),
        break_model(lambda x: rebuild(x, spec=replace(x.spec, windows=(WINDOW,) * x.spec.n_layers))),
    ),
    Case("a short context", ("context",), break_reading(clamp_positions)),
    Case("first token missing", ("first_token",), break_reading(drop_first)),
    Case("template missing", ("template",), break_reading(drop_marks)),
    Case("one place behind", ("place_shift",), break_reading(delay)),
    Case("overflow", ("not_finite",), break_model(overflow_layer)),
    Case("head of another model", ("wiring",), break_model(shuffle_head)),
    Case("[embedding; state] swapped", ("inputs",), break_head("eagle", swap_inputs), "eagle"),
    Case("states of layer i + 1", ("layers",), break_head("eagle3", shift_layers), "eagle3"),
    Case("healthy: noise of 30 %", FINE, break_model(lambda x: x)),
    Case("healthy: noise of 100 %", FINE, lambda model: (model, wrap_model(model, make_noisy(model, 1.0)))),
    Case("healthy: lab-draft", FINE, lambda model: (model, load("lab-draft"))),
    Case("healthy: lab-draft-plain", FINE, lambda model: (model, load("lab-draft-plain"))),
    Case("healthy: EAGLE", FINE, break_head("eagle", lambda head: head), "eagle"),
    Case("healthy: Medusa", FINE, break_head("medusa", lambda head: head), "medusa"),
)


def make_row(case: Case, seen: DraftExamination) -> dict[str, Any]:
    """What the table says of a pair."""
    first = seen.findings[0]
    return {
        "pair": case.name,
        "overlap": seen.figures["overlap"],
        "first": first.cause,
        "certainty": first.certainty,
        "right": first.cause in case.causes,
        "evidence": first.evidence,
        "others": [x.cause for x in seen.findings[1:]],
        "best": [(x.cause, x.how, round(x.after, 3)) for x in seen.experiments[:3]],
    }


def main() -> None:
    """Print a row for each pair that the model can make, then how many are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="lab")
    parser.add_argument("--only", nargs="*", help="words of the names of the pairs to make (default: all)")
    parser.add_argument("--answer-tokens", type=int, default=48)
    parser.add_argument("--json", metavar="OUT", help="append a line for each pair to this file")
    args = parser.parse_args()
    model = load(args.model)
    texts = write_texts(model, PROMPTS, args.answer_tokens, 512)
    print("| pair | overlap | first cause | certainty | right | evidence |")
    print("|---|---|---|---|---|---|")
    rows = []
    for case in CASES:
        if args.only and not any(x in case.name for x in args.only):
            continue
        if case.head and case.head not in model.decoder.heads:
            continue
        began = time.process_time()
        one = make_row(case, examine_texts(*case.make(model), texts))
        rows.append({**one, "seconds": time.process_time() - began})
        print(
            f"| {case.name} | {one['overlap']:.0%} | {one['first']} | {one['certainty']:.2f} | "
            f"{'yes' if one['right'] else 'no'} | {one['evidence']} |",
            flush=True,
        )
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(f"\n{sum(x['right'] for x in rows)} of {len(rows)} are right.")


if __name__ == "__main__":
    main()
