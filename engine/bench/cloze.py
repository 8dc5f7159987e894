"""Exits on an encoder: questions that one mask answers, under every rule that leaves a pass early, by its threshold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from decodescope.engine.core.component import build, parse_component, registry
from decodescope.engine.cost.cost import cost_of
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.timing.energy import joules_between, read_joules
from decodescope.engine.trace.records.events import Pass
from decodescope.engine.trace.records.passes import resolve_layers

from .questions.columns import AnswerCost, Spent, columns, count_weight_bytes, measured_peak
from .questions.questions import LabBenchError

FILE = Path(__file__).resolve().parents[2] / "assets" / "bench" / "cloze.jsonl"
FILL = 8  # the text's end fills the places behind the mask up to a multiple of so many tokens, as in training
SHORT = 30  # questions of a sort in the short form
WHOLE = "all layers"
# rule -> the bounds that are tried, from strict to lax; a place for each in its words
SWEEPS: dict[str, tuple[str, ...]] = {
    "confidence_exit threshold={}": ("0.99", "0.95", "0.9", "0.8", "0.6"),
    "entropy_exit threshold={}": ("0.05", "0.2", "0.4", "0.7", "1.0"),
    "normalized_entropy_exit threshold={}": ("0.01", "0.03", "0.05", "0.1", "0.15"),
    "patience patience={}": ("3", "2", "1"),
    "saturation threshold={}": ("0.2", "0.4", "0.6", "0.9"),
    "vote min_votes={}": ("1.9", "1.7", "1.5", "1.4"),
    "past_future threshold={}": ("0.95", "0.9", "0.8", "0.7", "0.5"),
    "hash_exit seed={} bucket_assignment=random": ("0", "1", "2", "3"),
    "trigrams heads=trigrams table_size={}": ("1024", "100", "0"),
    "trigrams layers={}": ("1", "2"),
    "row_pruning pruning_layers=1 keep_share={}": ("0.8", "0.6", "0.4", "0.2"),
    "row_pruning pruning_layers=2 keep_share={}": ("0.8", "0.6", "0.4", "0.2"),
    "row_pruning pruning_layers=4 keep_share={}": ("0.8", "0.6", "0.4", "0.2"),
    "magic_pyramid pruning_layers=2 keep_share=0.6 threshold={}": ("0.01", "0.05", "0.1"),
    "magic_pyramid pruning_layers=4 keep_share=0.4 threshold={}": ("0.01", "0.05", "0.1"),
}


@dataclass(frozen=True)
class ClozeQuestion:
    """A question: the text before the mask, the possible labels, and the right one."""

    sort: str
    prompt: str
    labels: tuple[str, ...]
    answer: str


@dataclass
class ClozeRow:
    """The result of a rule for the questions.

    It has, by sort, how many were asked and right; layers run at the mask, tests and FLOPs of all passes, summed; rows that
    were fed, once for each layer there is, and those that ran one; for lookups in a table, how many were found, and the most
    bytes that it took. answers: the cost of each question; answers are one token long.
    """

    rule: str
    asked: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    layers: int = 0
    tests: int = 0
    flops: int = 0
    rows: int = 0
    fed: int = 0
    looked: int = 0
    hits: int = 0
    table: int = 0
    answers: list[AnswerCost] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Shares and means, as plain data."""
        count = sum(self.asked.values())
        looked = {"hits": self.hits / self.looked, "table": self.table} if self.looked else {}
        return looked | {
            "right": sum(self.right.values()) / count,
            "by sort": {sort: self.right[sort] / n for sort, n in self.asked.items()},
            "layers": self.layers / count,
            "tests": self.tests / count,
            "flops": self.flops / count,
            "rows": self.rows / self.fed,
        }


def load_cloze_questions(file: Path = FILE, each: int | None = None) -> list[ClozeQuestion]:
    """The questions of a file, the first `each` of every sort."""
    chosen: list[ClozeQuestion] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        x = json.loads(line)
        if each is None or sum(q.sort == x["sort"] for q in chosen) < each:
            chosen.append(ClozeQuestion(x["sort"], x["prompt"], tuple(x["labels"]), x["answer"]))
    return chosen


class ClozeBench:
    """A model that reads both sides, and questions. heads: whether its states are read through trained exits.

    Raises LabBenchError for a model that knows no mask, has no tokenizer, or writes a label in several tokens.
    """

    def __init__(self, model: Model, asked: Sequence[ClozeQuestion]):
        spec, text = model.spec, model.tokenizer
        if spec.causal or spec.mask_token is None or text is None:
            raise LabBenchError(
                f"bench cloze asks for a mask to be filled, and {spec.name} knows none: choose lab-mdm+cloze."
            )
        self.model = model
        self.asked = list(asked)
        self.heads = "exits" in spec.heads
        self.lane = Lane("target", model.decoder, CachePolicy())
        end = [model.stop_tokens[0]] if model.stop_tokens else [0]
        self._labels = {label: text.encode(f" {label}") for q in self.asked for label in q.labels}
        if odd := next((x for x, ids in self._labels.items() if len(ids) != 1), None):
            raise LabBenchError(
                f"The label {odd!r} is no single token of {spec.name}: choose a model with lab's tokenizer."
            )
        self._rows: list[tuple[list[int], int]] = []
        for q in self.asked:
            ids = [*text.encode(q.prompt), spec.mask_token]
            self._rows.append((ids + end * (-len(ids) % FILL), len(ids) - 1))

    def rules(self) -> Iterator[tuple[str, AdaptiveDepth]]:
        """Name and rule of all that are tried: no rule, and each rule at each of its bounds.

        Rules for which this model lacks heads are left out.
        """
        yield WHOLE, cast(AdaptiveDepth, build("adaptive_depth", "all_layers", {}))
        trained = " heads=exits" if self.heads else ""
        for words, bounds in SWEEPS.items():
            knobs = {
                knob.name: knob.choices or ()
                for knob in registry("adaptive_depth")[words.split()[0]].params()
            }
            more = (" min_layers=1" if "min_layers" in knobs else "") + (
                trained if "exits" in knobs.get("heads", ()) else ""
            )
            for bound in bounds:
                said = words.format(bound)
                rule = cast(AdaptiveDepth, parse_component("adaptive_depth", said + more, said))
                if rule.refuse(Method(adaptive_depth=rule), self.model.spec) is None:
                    yield said, rule

    @torch.inference_mode()
    def measure(self, name: str, rule: AdaptiveDepth, most: int | None = None) -> ClozeRow:
        """Put all questions, or the first `most`, to the model under one rule.

        Each question takes one pass; its mask row decides when the pass ends.
        """
        row = ClozeRow(name)
        decoder = self.model.decoder
        fresh = not rule.exact
        rule.attach_lane(self.lane)
        rule.begin(decoder.spec)
        self.lane.set_needs(rule.needs)
        layers = decoder.spec.n_layers
        for q, (ids, place) in zip(self.asked[:most], self._rows[:most], strict=True):
            feed = Feed.causal_chain(ids, 0, decoder.device, logits=[place])
            energy, began = read_joules(), time.perf_counter()
            skip = rule.plan(0, feed) if fresh else None
            logits = self.lane.forward(feed, "canvas", skip=skip, depth=rule if fresh else None)[0, 0]
            took: Spent = dict.fromkeys(("seconds", "decode_s"), time.perf_counter() - began)
            took |= {
                "tokens": 1,
                "kv_bytes": self.lane.cache.nbytes,
                "joules": joules_between(energy, read_joules()),
            }
            self.lane.rollback()
            passes = self.lane.take_passes()
            flops = sum(cost_of(decoder.spec, x).flops for x in passes)
            row.flops, took["flops"] = row.flops + flops, flops
            row.answers.append(AnswerCost(name, took))
            row.fed += passes[-1].tokens * layers
            row.rows += _attention_rows(passes[-1], layers)
            left = rule.take_exit()
            if left is not None and left.known is not None:
                row.looked, row.hits = row.looked + len(left.known), row.hits + sum(left.known)
                row.table = max(row.table, left.table or 0)
            row.layers += layers if left is None else left.depth
            row.tests += 0 if left is None else len(left.tests)
            said = max(q.labels, key=lambda label: float(logits[self._labels[label][0]]))
            row.asked[q.sort] = row.asked.get(q.sort, 0) + 1
            row.right[q.sort] = row.right.get(q.sort, 0) + (said == q.answer)
        return row


def _attention_rows(one: Pass, layers: int) -> int:
    """Rows that ran the attention of a layer, summed over all."""
    if one.routed is not None:
        return sum(len(one.running_rows(i, "attn")) for i in range(layers))
    return one.tokens * len(resolve_layers(one.attn, range(layers)))


def measure_cloze(bench: ClozeBench, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The figures of every rule, by name, with a description of the measurement, as plain data."""
    rows, answers = dict[str, dict[str, Any]](), list[AnswerCost]()
    for name, rule in bench.rules():
        if not rows:
            bench.measure(name, rule, 1)  # what runs first is slower
        row = bench.measure(name, rule)
        rows[name] = row.record()
        answers += row.answers
        say(name)
    spec = bench.model.spec
    settings = {
        "weights": dict.fromkeys(rows, count_weight_bytes([bench.model])),
        "peak": measured_peak(bench.model),
    }
    return {
        "model": spec.name,
        "layers": spec.n_layers,
        "heads": bench.heads,
        "questions": len(bench.asked),
        "rules": rows,
        "settings": settings,
        "columns": columns(settings, answers),
    }
