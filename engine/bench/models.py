"""Models made from a model: what transforms of its weights save, and how they change its answers and distributions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.core.component import registry
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.bases.weights import CalibrationData, parse_transform_list
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.layer import Layer
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.session.run import encode_text_or_ids

from .figures.models import DENSE, ModelsResult, ModelsRow
from .labbench import Bench, ask_questions, describe_questions, score_turns
from .questions.columns import count_weight_bytes
from .questions.questions import BenchQuestion, LabBenchError

SHORT = 2  # questions of a kind in the short form
RIGHT = 1.0  # the score of an answer that is right
ROWS = (1, 2, 4, 8, 16, 32, 64)  # of a pass, where speed alone is measured
HELD = 128  # entries that such a pass finds


def default_transforms() -> dict[str, str]:
    """Name -> transforms of every model that is made unless some are named: each transform with its defaults."""
    return {name: name for name in registry("weights")}


def make_models(
    dense: Model, wanted: Mapping[str, str], make: Callable[[str], Model], lenient: bool = False
) -> tuple[dict[str, Model], dict[str, str]]:
    """The dense model and those that `make` makes from it, by name; and, if `lenient`, why some cannot be made."""
    models, left_out = {DENSE: dense}, {}
    for name, words in wanted.items():
        if name == DENSE:
            raise LabBenchError(
                f"The name {DENSE} is that of the model as it is, which all are compared with: use another."
            )
        try:
            models[name] = make(words)
        except Refusal as error:
            if not lenient:
                raise
            left_out[name] = str(error)
    return models, left_out


class ModelsBench(Bench):
    """Models by name, the dense one first, that write by plain greedy decoding.

    left_out: name -> why it could not be made. Raises LabBenchError if the dense one has no tokenizer.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        left_out: Mapping[str, str] | None = None,
        *,
        new_tokens: int | None = None,
    ):
        self.variants, self.left_out = dict(models), dict(left_out or {})
        super().__init__(self.variants[DENSE], {}, new_tokens=new_tokens)
        self._benches = {name: Bench(x, {}, new_tokens=new_tokens) for name, x in self.variants.items()}

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        for name in ("methods", "exactness", "draft", "draft_fingerprint", "further", "temperature", "seed"):
            del settings[name]
        return {
            **settings,
            "models": {name: x.spec.weights for name, x in self.variants.items()},
            "weights": {name: count_weight_bytes([x]) for name, x in self.variants.items()},
            "left_out": self.left_out,
        }

    def figures(self, question: BenchQuestion, turn: int) -> list[ModelsRow]:
        """The rows of every model for a question; they take turns beginning with number `turn`."""
        names, laws = list(self.variants), self.compare_distributions(question)
        shift = turn % len(names)
        rows = {name: self._row(question, name, laws[name]) for name in names[shift:] + names[:shift]}
        return [rows[name] for name in names]

    def _row(self, question: BenchQuestion, name: str, law: Mapping[str, float]) -> ModelsRow:
        bench = self._benches[name]
        talk = bench.talk(question, Method())
        fault = next((x.fault for x in talk if x.fault), "")
        row = ModelsRow(question.id, question.kind, name, fault=fault)
        if fault:
            return row
        whole = bench.row(question, "autoregressive", talk, talk)
        scores = score_turns(question, whole.said)
        right = None if scores is None else min(scores) >= RIGHT
        row = replace(row, score=whole.score, right=right, tokens=whole.tokens, spent=whole.spent)
        return replace(row, places=int(law["places"]), nats=law["nats"], kl=law["kl"], same=law["same"])

    @torch.inference_mode()
    def compare_distributions(self, question: BenchQuestion) -> dict[str, dict[str, float]]:
        """Model -> three sums that compare its distributions with the dense model's.

        They are taken at every place of the question's first turn and its reference. They are the nats of the tokens that come,
        the divergence from the dense model's distribution, and where both have the same likeliest token.
        """
        ids = self.first_prompt(question) + (
            encode_text_or_ids(self.model, question.references[0]) if question.references else []
        )
        ids = ids[: self.model.spec.max_positions]
        due = torch.tensor(ids[1:])
        sums = dict[str, dict[str, float]]()
        dense = None
        for name, model in self.variants.items():
            lane = Lane("target", model.decoder, CachePolicy())
            logits = lane.forward(Feed.causal_chain(ids[:-1], 0, model.decoder.device), "score")[0]  # [T, V]
            lane.rollback()
            logp = logits.double().log_softmax(-1)
            dense = logp if dense is None else dense
            sums[name] = {
                "places": len(due),
                "nats": -float(logp.gather(1, due.to(logp.device)[:, None]).sum()),
                "kl": max(0.0, float((dense.exp() * (dense - logp)).sum())),
                "same": float((dense.argmax(-1) == logp.argmax(-1)).sum()),
            }
        return sums


def measure_models(
    bench: ModelsBench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> ModelsResult:
    """Put every question to every model.

    Other arguments are those of `gather`, which may be interrupted: then the result so far is returned.
    """
    result = ModelsResult({**bench.settings(), "questions": describe_questions(questions, asked)})
    ask_questions(bench, result, questions, bench.figures, out=out, resume=resume, say=say)
    return result


# ---- speed alone, on random weights


def random_decoder(params: int, dtype: torch.dtype, seed: int = 0) -> Decoder:
    """A decoder of random weights with about so many parameters, in proportions of small models.

    Its heads are 64 wide, with a quarter as many KV heads. Its feed-forward block is three times as wide as the model, which is
    40 times as wide as it is deep or more.
    """
    return random_decoder_of(random_shape(params), dtype, seed)


def random_decoder_of(
    spec: ModelSpec, dtype: torch.dtype, seed: int = 0, device: torch.device | str = "cpu"
) -> Decoder:
    """A decoder of random weights of that shape, which are made where they stay."""
    chance = torch.Generator(device).manual_seed(seed)
    d = spec.d_model
    q = spec.n_heads * spec.head_dim
    kv = spec.n_kv_heads * spec.head_dim
    f = spec.d_ff

    def matrix(rows: int, columns: int) -> torch.Tensor:
        weights: torch.Tensor = (
            torch.randn(rows, columns, generator=chance, device=device) * columns**-0.5
        ).to(dtype)
        return weights

    def norm() -> torch.Tensor:
        return torch.ones(d, dtype=dtype, device=device)

    layers = [
        Layer(norm(), matrix(q + 2 * kv, d), matrix(d, q), norm(), matrix(2 * f, d), matrix(d, f))
        for _ in range(spec.n_layers)
    ]
    embed = matrix(spec.vocab, d)
    return Decoder(spec, embed, layers, norm(), embed if spec.tied else matrix(spec.vocab, d))


def random_shape(params: int) -> ModelSpec:
    """The shape with the number of parameters nearest to `params`."""

    def shape(heads: int, layers: int) -> ModelSpec:
        width = 64 * heads
        return ModelSpec(
            f"random {params / 1e6:g} M",
            layers,
            heads,
            max(1, heads // 4),
            64,
            width,
            3 * width,
            8192,
            tied=True,
        )

    sizes = [shape(heads, layers) for heads in range(4, 68, 4) for layers in range(2, 41)]
    return min((x for x in sizes if x.d_model >= 40 * x.n_layers), key=lambda x: abs(x.params - params))


def measure_speeds(
    params: int,
    wanted: Mapping[str, str],
    *,
    rows: Sequence[int] = ROWS,
    repeats: int = 5,
    dtype: torch.dtype = torch.bfloat16,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Milliseconds of a pass of each number of rows behind HELD entries, by transform.

    The weights are random, as they are and under each transform.

    The figures are the median of `repeats` rounds, in turns. Raises a Refusal where a transform cannot be made.
    """
    say(f"making about {params / 1e6:g} M random weights")
    plain = random_decoder(params, dtype)
    decoders = {DENSE: plain.pack_weights()}
    for name, words in wanted.items():
        say(f"making {name}")
        decoders[name] = apply_transforms(plain, words)
    return {
        "spec": plain.spec.record(),
        "params": plain.spec.params,
        "dtype": str(dtype).removeprefix("torch."),
        "held": HELD,
        "repeats": repeats,
        "rows": list(rows),
        "bytes": {name: count_weight_bytes([_DecoderHolder(x)]) for name, x in decoders.items()},  # type: ignore[list-item] # only its decoder is read
        "ms": {name: list(each) for name, each in time_passes(decoders, rows, repeats, say=say)},
    }


class _DecoderHolder:
    """What `resident` reads of a model."""

    def __init__(self, decoder: Decoder):
        self.decoder = decoder


def apply_transforms(plain: Decoder, words: str) -> Decoder:
    """Apply transforms that read no text to random weights.

    Raises a Refusal where one cannot be made, or reads some.
    """

    def silent() -> torch.Tensor:
        raise LabBenchError(
            "Random weights have no text to be calibrated on: choose a transform that looks at none."
        )

    decoder = plain
    for part in parse_transform_list(words):
        decoder = part.transform(decoder, CalibrationData(silent))
    return decoder


@torch.inference_mode()
def time_passes(
    decoders: Mapping[str, Decoder],
    rows: Sequence[int],
    repeats: int,
    held: int = HELD,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[str, list[float]]]:
    """Name -> milliseconds of a pass of each number of rows behind `held` entries: the median of `repeats` rounds, in turns."""
    lanes = {name: Lane("target", x, CachePolicy()) for name, x in decoders.items()}
    for lane in lanes.values():
        lane.read([1 + i % 4096 for i in range(held)])
    spent: dict[str, list[list[float]]] = {name: [] for name in decoders}
    for n in rows:
        say(f"passes of {n} row{'s' if n > 1 else ''}")
        feeds = {name: Feed.causal_chain([7] * n, held, x.device) for name, x in decoders.items()}
        for each in spent.values():
            each.append([])
        for turn in range(repeats + 1):  # the first warms up
            for name, lane in lanes.items():
                began = time.perf_counter()
                lane.forward(feeds[name])
                took = time.perf_counter() - began
                lane.rollback()
                if turn:
                    spent[name][-1].append(1e3 * took)
    for name, lists in spent.items():
        yield name, [sorted(x)[len(x) // 2] for x in lists]
