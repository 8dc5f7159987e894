"""The price of a small cache: every policy reads the same texts at several budgets, and what their words cost is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.component import registry
from decodescope.engine.load import Model
from decodescope.engine.method import Method
from decodescope.engine.model.cache import LayerStore
from decodescope.engine.model.executor import EngineFault
from decodescope.engine.model.feed import Feed
from decodescope.engine.session import Session

from .answers import Bench, about
from .answers_figures import BASELINE, mean
from .questions import LabBenchError, Question
from .result_file import Gathered, gather

VERSION = 1  # of the JSON object
SHARES = (0.5, 0.25, 0.1, 0.05)  # of the prompt; the whole is plain decoding
PROMPT, WORDS = 512, 128  # tokens that are read before anything may leave, and tokens whose price is taken
TEXTS, SHORT = 4, 1  # of a kind, and in the short form
KINDS = ("text", "copy")


@dataclass(frozen=True)
class KVRow:
    """What one method made of one text at one budget.

    share:    the budget as a share of the prompt; None: the method has no such knob
    nats:     -ln p of the words that come, a mean;  kl: from the full cache's distribution to this one's, a mean in nats
    same:     share of words at which both think the same token likeliest
    held:     entries of all layers and KV heads behind the last word;  full: those of the full cache
    kv_bytes: of all storages of the cache, then;  full_bytes: those of the full cache;  fault: why nothing could be measured
    """

    question: int | str
    kind: str
    method: str
    share: float | None
    tokens: int
    nats: float
    kl: float
    same: float
    held: int
    full: int
    kv_bytes: int
    full_bytes: int
    fault: str = ""


class KVResult(Gathered[KVRow]):
    """What all methods made of the texts so far."""

    kind = KVRow

    def record(self) -> dict[str, Any]:
        """As plain data: settings, and for each method its points, the largest budget first."""
        points: dict[str, list[dict[str, Any]]] = {}
        for name, share in dict.fromkeys((row.method, row.share) for row in self.rows):
            rows = [row for row in self.rows if (row.method, row.share) == (name, share)]
            points.setdefault(name, []).append(_point(share, rows))
        return {
            "kv": VERSION,
            "settings": self.settings,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "kinds": {kind: sum(row.kind == kind and row.method == BASELINE for row in self.rows) for kind in KINDS},
            "skipped": self.skipped,
            "methods": points,
            "rows": [asdict(row) for row in self.rows],
        }


def _point(share: float | None, rows: Sequence[KVRow]) -> dict[str, Any]:
    """The figures of one method at one budget: bytes as a share of the full cache's, and means by kind of text."""
    whole = [row for row in rows if not row.fault]
    of = {kind: [row for row in whole if row.kind == kind] for kind in KINDS}
    bytes_, full = sum(row.kv_bytes for row in whole), sum(row.full_bytes for row in whole)
    held, entries = sum(row.held for row in whole), sum(row.full for row in whole)
    return {
        "share": share,
        "faults": [row.fault for row in rows if row.fault],
        "bytes": bytes_ / full if full else None,
        "entries": held / entries if entries else None,
        "by_kind": {
            kind: {name: mean([getattr(row, name) for row in some]) for name in ("nats", "kl", "same")}
            for kind, some in of.items()
        },
    }


@dataclass(frozen=True)
class Reading:
    """A text read under a method: log-probabilities float [WORDS, V], and what the cache held behind it."""

    logp: Tensor
    held: int
    kv_bytes: int


class KVBench:
    """A model, and methods by name, each at every budget if its policy has the knob `share` and it is not set.

    words: how many tokens of a text are priced, behind a prompt of PROMPT. Raises MethodError if a method cannot run here,
    LabBenchError if the model has no tokenizer.
    """

    def __init__(self, model: Model, methods: Mapping[str, Method] | None = None, *, words: int = WORDS):
        self.model, self.words = model, words
        self.methods = usual() if methods is None else dict(methods)
        self._bench = Bench(model, {})
        for method in self.methods.values():
            method.check(model.spec)
            if method.lanes or method.drafter.drafts:
                raise LabBenchError(f"bench kv measures caches: leave the drafter {method.drafter.name} out.")

    def settings(self) -> dict[str, Any]:
        """What the figures depend on, as plain data."""
        settings = self._bench.settings()
        chosen = {name: method.record() for name, method in self.methods.items()}
        return {**settings, "methods": chosen, "shares": list(SHARES), "prompt": PROMPT, "words": self.words}

    def budgets(self) -> Iterator[tuple[str, float | None, Method]]:
        """Name, share and method of everything that is measured, in order."""
        for name, method in self.methods.items():
            if method.policy.share:
                yield name, method.policy.share, method
            elif any(knob.name == "share" for knob in method.policy.params()):
                for share in SHARES:
                    policy = copy(method.policy)
                    policy.share = share
                    yield name, share, replace(method, policy=policy)
            else:
                yield name, None, method

    def tokens(self, text: Question) -> list[int]:
        """PROMPT tokens of a text, and the words behind them; of kind "copy" these are the prompt's first ones once more."""
        whole = self._bench.first(text)
        return whole[: PROMPT + self.words] if text.kind == "text" else whole[:PROMPT] + whole[: self.words]

    @torch.inference_mode()
    def read(self, method: Method, tokens: Sequence[int]) -> Reading:
        """Read a text as a run would that writes it: the prompt, then token by token. Raises EngineFault."""
        prompt, words = tokens[: -self.words], tokens[-self.words :]
        session = Session(self.model, method, prompt, max_new_tokens=len(words), stop_tokens=[], level="counts")
        session.start()
        lane, rows = session.target, []
        for at, token in enumerate([prompt[-1], *words[:-1]], len(prompt) - 1):
            rows.append(lane.forward(Feed.causal([token], at, lane.decoder.device))[0, 0])
            lane.commit([0])
        held = sum(map(_held, lane.cache.layers))
        return Reading(torch.stack(rows).log_softmax(-1), held, lane.cache.nbytes)

    def rows(self, text: Question) -> list[KVRow]:
        """What every method makes of a text, the full cache first."""
        tokens = self.tokens(text)
        full = self.read(Method(), tokens)
        rows = [self._row(text, BASELINE, 1.0, tokens, full, full)]
        for name, share, method in self.budgets():
            try:
                rows.append(self._row(text, name, share, tokens, self.read(method, tokens), full))
            except EngineFault as error:
                rows.append(KVRow(text.id, text.kind, name, share, 0, 0.0, 0.0, 0.0, 0, 0, 0, 0, str(error)))
        return rows

    def _row(
        self, text: Question, name: str, share: float | None, tokens: Sequence[int], mine: Reading, full: Reading
    ) -> KVRow:
        """What `mine` makes of the words, beside the full cache."""
        words = torch.tensor(tokens[-self.words :], device=mine.logp.device)
        nats = -mine.logp.gather(1, words[:, None]).mean()
        kl = (full.logp.exp() * (full.logp - mine.logp)).sum(-1).mean()
        same = (full.logp.argmax(-1) == mine.logp.argmax(-1)).double().mean()
        figures = (float(nats), max(0.0, float(kl)), float(same))
        sizes = (mine.held, full.held, mine.kv_bytes, full.kv_bytes)
        return KVRow(text.id, text.kind, name, share, len(words), *figures, *sizes)

    def short(self, text: Question) -> str:
        """Why a text cannot be used; empty if it can."""
        due = PROMPT + (self.words if text.kind == "text" else 0)
        have = len(self._bench.first(text))
        return "" if have >= due else f"the text {text.id} has {have} tokens, and {due} are read."


def _held(store: LayerStore) -> int:
    """Entries of a layer, of all its KV heads."""
    return sum(store.lengths)


def usual() -> dict[str, Method]:
    """Every policy that has a budget as a share of the prompt, and reads no further model."""
    methods: dict[str, Method] = {}
    for name, part in registry("policy").items():
        if not part.roles() and any(knob.name == "share" for knob in part.params()):
            methods[name] = Method.named({"policy": name})
    return methods


def texts(questions: Sequence[Question], count: int) -> list[Question]:
    """`count` texts of each kind, out of the longest first turns; of each, one is read on and one is copied."""
    longest = sorted(questions, key=lambda x: (-len(x.turns[0]), str(x.id)))[:count]
    return [Question(f"{x.id} {kind}", kind, x.turns[:1]) for x in longest for kind in KINDS]


def kv(
    bench: KVBench,
    questions: Sequence[Question],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> KVResult:
    """Read every text under everything. `questions`: from `texts`; `asked`: what to remember of where they came from; the rest
    as for `gather`, which may be interrupted: what there is until then is returned."""
    result = KVResult({**bench.settings(), "questions": about(questions, asked)})

    def work(i: int, text: Question) -> tuple[list[KVRow], str]:
        why = bench.short(text)
        return ([], why) if why else (bench.rows(text), "")

    gather(result, questions, work, ready=lambda text: None, out=out, resume=resume, say=say)
    return result
