"""The price of a small cache: every policy reads the same texts at several budgets.

It compares the price of their words, and which pass keys are found in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.component import registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.run import encode_text_or_ids
from decodescope.engine.session.session import Session

from .figures.kv import PRICED, KVResult, KVRow
from .figures.labbench import BASELINE
from .labbench import ROOM, Bench, describe_questions
from .questions.columns import Meter, Spent, count_weight_bytes
from .questions.passkeys import KIND as PASSKEY
from .questions.passkeys import hide_key, longest_prompt
from .questions.questions import BenchQuestion, LabBenchError
from .questions.result_file import measure_questions
from .questions.score import score

SHARES = (0.5, 0.25, 0.1, 0.05)  # of the prompt; the whole is plain decoding
PROMPT, WORDS = 512, 128  # tokens that are read before anything may be evicted, and tokens that are priced
TEXTS, SHORT = 4, 1  # of a kind, and in the short form
KEYS, FEWER = 20, 4  # pass keys, and in the short form
PLAIN = Method()


@dataclass(frozen=True)
class TextReading:
    """A text read under a method: log-probabilities float [WORDS, V], what the cache held behind it, and what it took."""

    logp: Tensor
    held: int
    kv_bytes: int
    spent: Spent


@dataclass(frozen=True)
class PasskeyAnswer:
    """The answer to a question under a method, how many tokens it took, and what the cache held behind them."""

    said: str
    tokens: int
    held: int
    kv_bytes: int


class KVBench:
    """A model, and methods by name, each at every budget if its policy has the knob `budget_share` and it is not set.

    words: how many tokens of a text are priced, behind a prompt of PROMPT;  left_out: name -> why a policy, unless methods are
    given, cannot run here. Raises MethodError if a method cannot run here,
    LabBenchError if the model has no tokenizer.
    """

    def __init__(self, model: Model, methods: Mapping[str, Method] | None = None, *, words: int = WORDS):
        self.model, self.words = model, words
        self.methods, self.left_out = default_methods(model) if methods is None else (dict(methods), {})
        self._bench = Bench(model, {})
        self._asked: tuple[Any, list[int] | None] = (None, None)
        for method in self.methods.values():
            method.check(model.spec)
            if method.lanes or method.drafter.drafts:
                raise LabBenchError(f"bench kv measures caches: leave the drafter {method.drafter.name} out.")

    def settings(self) -> dict[str, Any]:
        """The settings that the figures depend on, as plain data."""
        settings = self._bench.settings()
        chosen = {name: method.record() for name, method in self.methods.items()}
        sizes: dict[str, Any] = {"shares": list(SHARES), "prompt": PROMPT, "words": self.words}
        sizes["weights"] = dict.fromkeys([BASELINE, *self.methods], count_weight_bytes([self.model]))
        return {**settings, "methods": chosen, **sizes, "left_out": self.left_out}

    def budgets(self) -> Iterator[tuple[str, float | None, Method]]:
        """Name, share and method of everything that is measured, in order."""
        for name, method in self.methods.items():
            if method.policy.budget_share:
                yield name, method.policy.budget_share, method
            elif any(knob.name == "budget_share" for knob in method.policy.params()):
                for share in SHARES:
                    policy = copy(method.policy)
                    policy.budget_share = share
                    yield name, share, replace(method, policy=policy)
            else:
                yield name, None, method

    def tokens(self, text: BenchQuestion) -> list[int]:
        """PROMPT tokens of a text, and the words behind them; of kind "copy" these are the prompt's first ones once more."""
        whole = self._bench.first_prompt(text)
        return whole[: PROMPT + self.words] if text.kind == "text" else whole[:PROMPT] + whole[: self.words]

    @torch.inference_mode()
    def read_text(self, method: Method, tokens: Sequence[int]) -> TextReading:
        """Read a text as a run that writes it would: the prompt, then token by token. Raises EngineFault."""
        prompt, words = tokens[: -self.words], tokens[-self.words :]
        session = Session(
            self.model, method, prompt, max_new_tokens=len(words), stop_tokens=[], level="summary"
        )
        meter = Meter(session.header)
        meter.add_prompt(session.start())
        lane, rows = session.target, []
        lane.take_passes()
        began = time.perf_counter()
        for at, token in enumerate([prompt[-1], *words[:-1]], len(prompt) - 1):
            rows.append(lane.forward(Feed.causal_chain([token], at, lane.decoder.device))[0, 0])
            lane.commit([0])
        held = sum(map(_entry_count, lane.cache.layers))
        meter.add_passes(lane.take_passes(), time.perf_counter() - began, lane.cache.nbytes)
        return TextReading(
            torch.stack(rows).log_softmax(-1), held, lane.cache.nbytes, meter.totals(len(words))
        )

    def passkey_prompt(self, text: BenchQuestion) -> list[int] | None:
        """The prompt that hides a pass key and asks for it, as near to PROMPT tokens as whole sentences allow.

        None where the stories are too short for that.
        """
        if self._asked[0] != text.id:
            bare = hide_key(text, 0)
            # what the chat template adds: rendering takes long
            around = len(self._prompt(text, bare)) - self._token_count(bare)
            turn = longest_prompt(text, self._token_count, PROMPT - around)
            self._asked = (text.id, None if turn is None else self._prompt(text, turn))
        return self._asked[1]

    def _token_count(self, turn: str) -> int:
        return len(encode_text_or_ids(self.model, turn))

    def _prompt(self, text: BenchQuestion, turn: str) -> list[int]:
        return self._bench.prompt(text, [{"role": "user", "content": turn}])

    def answer(self, method: Method, prompt: Sequence[int], key: str) -> PasskeyAnswer:
        """The greedy answer to a prompt, of at most ROOM tokens beyond the key's. Raises EngineFault."""
        most = len(encode_text_or_ids(self.model, key)) + ROOM
        session = Session(self.model, method, prompt, max_new_tokens=most, level="summary")
        tokens = [token for step in session.stream() for token in step.emitted]
        cache = session.target.cache
        return PasskeyAnswer(
            self._bench.text(tokens), len(tokens), sum(map(_entry_count, cache.layers)), cache.nbytes
        )

    def rows(self, text: BenchQuestion) -> list[KVRow]:
        """The rows of every method for a text, the full cache first."""
        row = self._passkey_row_builder(text) if text.kind == PASSKEY else self._text_row_builder(text)
        rows = [row(BASELINE, 1.0, PLAIN)]
        for name, share, method in self.budgets():
            try:
                rows.append(row(name, share, method))
            except (
                EngineFault,
                MethodError,
                ParamError,
            ) as error:  # of one method, at its begin or on the way
                rows.append(KVRow(text.id, text.kind, name, share, fault=str(error)))
        return rows

    def _text_row_builder(self, text: BenchQuestion) -> Callable[[str, float | None, Method], KVRow]:
        """A function that builds the row of a method, by name and share: the price of the words, next to the full cache."""
        tokens = self.tokens(text)
        full = self.read_text(PLAIN, tokens)
        words = torch.tensor(tokens[-self.words :], device=full.logp.device)

        def row(name: str, share: float | None, method: Method) -> KVRow:
            mine = full if method == PLAIN else self.read_text(method, tokens)
            nats = -mine.logp.gather(1, words[:, None]).mean()
            kl = (full.logp.exp() * (full.logp - mine.logp)).sum(-1).mean()
            same = (full.logp.argmax(-1) == mine.logp.argmax(-1)).double().mean()
            return KVRow(
                text.id,
                text.kind,
                name,
                share,
                tokens=len(words),
                nats=float(nats),
                kl=max(0.0, float(kl)),
                same=float(same),
                held=mine.held,
                full=full.held,
                kv_bytes=mine.kv_bytes,
                full_bytes=full.kv_bytes,
                spent=mine.spent,
            )

        return row

    def _passkey_row_builder(self, text: BenchQuestion) -> Callable[[str, float | None, Method], KVRow]:
        """The same of a pass key: whether the method answers it."""
        prompt, key = self.passkey_prompt(text), text.references[0]
        assert prompt is not None and text.scorer is not None, "`short` says so before"
        full, scorer = self.answer(PLAIN, prompt, key), text.scorer

        def row(name: str, share: float | None, method: Method) -> KVRow:
            mine = full if method == PLAIN else self.answer(method, prompt, key)
            return KVRow(
                text.id,
                text.kind,
                name,
                share,
                tokens=mine.tokens,
                held=mine.held,
                full=full.held,
                kv_bytes=mine.kv_bytes,
                full_bytes=full.kv_bytes,
                right=score(scorer, mine.said, key) == 1,
                said=mine.said,
            )

        return row

    def skip_reason(self, text: BenchQuestion) -> str:
        """Why a text cannot be used; empty if it can."""
        if text.kind == PASSKEY:
            return (
                ""
                if self.passkey_prompt(text)
                else f"the stories around {text.id} end before {PROMPT} tokens."
            )
        due = PROMPT + (self.words if text.kind == "text" else 0)
        have = len(self._bench.first_prompt(text))
        return "" if have >= due else f"the text {text.id} has {have} tokens, and {due} are read."


def _entry_count(store: LayerStore) -> int:
    """Entries of a layer, of all its KV heads."""
    return sum(store.lengths)


def default_methods(model: Model) -> tuple[dict[str, Method], dict[str, str]]:
    """Every policy with a budget as a share of the prompt that reads no further model; and why some cannot run."""
    methods: dict[str, Method] = {}
    left_out: dict[str, str] = {}
    for name, part in registry("policy").items():
        if part.roles() or all(knob.name != "budget_share" for knob in part.params()):
            continue
        method = Method.from_names({"policy": name})
        try:
            method.check(model.spec)
        except MethodError as error:
            left_out[name] = str(error)
        else:
            methods[name] = method
    return methods, left_out


def select_texts(questions: Sequence[BenchQuestion], count: int) -> list[BenchQuestion]:
    """`count` texts of each kind, from the longest first turns: each turn is read on once and copied once."""
    chosen = sorted(questions, key=lambda x: (-len(x.turns[0]), str(x.id)))[:count]
    return [BenchQuestion(f"{x.id} {kind}", kind, x.turns[:1]) for x in chosen for kind in PRICED]


def measure_kv(
    bench: KVBench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> KVResult:
    """Read every text under every method and budget.

    `questions`: from `select_texts` and `passkeys`; `asked`: the record of their source. Other arguments are those of `gather`,
    which may be interrupted: then the result so far is returned.
    """
    result = KVResult({**bench.settings(), "questions": describe_questions(questions, asked)})

    def work(i: int, text: BenchQuestion) -> tuple[list[KVRow], str]:
        why = bench.skip_reason(text)
        return ([], why) if why else (bench.rows(text), "")

    measure_questions(result, questions, work, ready=lambda text: None, out=out, resume=resume, say=say)
    return result
