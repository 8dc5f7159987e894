"""What the steps of recorded runs did, by the passes and the calls of draft heads that a price follows from."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from torch import Tensor

from decodescope.engine.bench.clock.contest import DecodeResult
from decodescope.engine.bench.clock.head_clock import HeadClock
from decodescope.engine.bench.figures.speculation import SpecResult, SpecRow
from decodescope.engine.bench.questions.questions import BenchQuestion
from decodescope.engine.bench.speculation import SpeculationBench
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace.records.events import Pass, Step
from decodescope.engine.trace.records.passes import resolve_layers
from decodescope.engine.trace.records.phases import is_deciding_pass

VERSION = 1
UNEMBED = "unembed"


class Heard(HeadClock):
    """A head clock that also keeps which heads were called, and what they read: calls, and how many, by look at the clock."""

    def __init__(self, *models: Any) -> None:
        super().__init__(*models)
        self.calls: list[Counter[str]] = []
        self._now: Counter[str] = Counter()

    def record_work(self, work: Any, given: Sequence[Any]) -> None:
        """Note a call as [model, kind of head, method, what it read]; of tensors the sizes."""
        owner, name = (work.__self__, work.__name__) if hasattr(work, "__self__") else (work, "forward")
        mine = owner in (self.model.decoder, *self.model.decoder.heads.values())
        # the arguments after what it reads are its places
        places = name == "forward" and hasattr(owner, "attention")
        read = takewhile(lambda x: isinstance(x, Tensor), given) if places else given
        kind = getattr(owner, "kind", UNEMBED)
        self._now[json.dumps(["target" if mine else "draft", kind, name, [_said(x) for x in read]])] += 1

    def take_us(self) -> float:
        """As the clock's."""
        self.calls.append(self._now)
        self._now = Counter()
        return super().take_us()


def _said(given: Any) -> Any:
    if isinstance(given, Tensor):
        return list(given.shape) if given.is_floating_point() else {"ids": list(given.shape)}
    if isinstance(given, Decoder):
        return "vocabulary"
    if isinstance(given, int):
        return given
    return None


@dataclass(frozen=True)
class ReplayRow(SpecRow):
    """What a method made of a question, and `parts` of its steps: `passes`, [lane, rows, share of attention, share of
    feed-forward blocks, rows unembedded] as text -> how many; `heads`, a call as text -> how many; `own_us`, all books."""

    parts: Mapping[str, Any] = field(default_factory=dict)


class ReplayResult(SpecResult):
    """What was recorded, or priced."""

    kind = ReplayRow

    def record(self) -> dict[str, Any]:
        """As `bench speculation` has it."""
        return {**super().record(), "replayed": VERSION}


class Recording(SpeculationBench):
    """Lets every method write the answer to each first turn `repeats` times, and keeps what the steps did."""

    clock = Heard
    result = ReplayResult
    turns = "first"

    def settings(self) -> dict[str, Any]:
        """With the sizes of what may be made larger."""
        sizes = {
            role: {
                "spec": x.spec.record(),
                "heads": {kind: head.shape for kind, head in x.decoder.heads.items()},
            }  # type: ignore[union-attr] # heads are Heads
            for role, x in {"target": self.model, **self.drafts}.items()
        }
        return {**super().settings(), "sizes": sizes}

    def rows(self, question: BenchQuestion, turn: int, clock: HeadClock) -> Sequence[SpecRow]:
        """A row for each method, in turns beginning with number `turn`."""
        assert isinstance(clock, Heard)
        prompt, made = self.greedy.first_prompt(question), {}
        field_ = self.contestants(list(self.entries), self.new_tokens, clock)
        shift = turn % len(field_)
        for one in field_[shift:] + field_[:shift]:
            written, calls = [], []
            for _ in range(self.repeats):
                clock.calls.clear()
                written.append(one.write(prompt))
                calls = clock.calls[1:]  # behind the prompt
            made[one.name] = recorded(question, one.name, written, calls)
        return [made[name] for name in self.entries]


def recorded(
    question: BenchQuestion, name: str, calls: Sequence[DecodeResult], heads: Iterable[Counter[str]]
) -> ReplayRow:
    """The row of several calls that wrote the same; heads: what they called in each step of the last one."""
    last = calls[-1]
    assert last.began is not None
    specs = PassPricer(last.began[0]).specs
    passes = Counter(json.dumps(asked(x, specs[x.lane].n_layers)) for step in last.steps for x in step.passes)
    each = [(step, us) for call in calls for step, us in zip(call.steps, call.heads_us, strict=True)]
    own = statistics.median(_own_us(step, us) for step, us in each) if each else 0.0
    return ReplayRow(
        question.id,
        question.kind,
        name,
        tokens=len(last.tokens),
        steps=len(last.steps),
        passes=sum(is_deciding_pass(x) for step in last.steps for x in step.passes),
        drafted=sum(step.drafted for step in last.steps),
        accepted=sum(step.accepted for step in last.steps),
        seconds=[call.decode_s for call in calls],
        decode_s=[call.decode_s for call in calls],
        step_us=statistics.median(step.wall_us for step, _ in each) if each else 0.0,
        own_us=own,
        parts={"passes": dict(passes), "heads": dict(sum(heads, Counter())), "own_us": own * len(last.steps)},
    )


def _own_us(step: Step, heads_us: float) -> float:
    return max(0.0, step.wall_us - sum(x.wall_us for x in step.passes) - heads_us)


def asked(one: Pass, layers: int) -> list[Any]:
    """What a pass is priced by: lane, rows, the shares of attention and of feed-forward blocks that ran, by rows, and how many
    rows were unembedded in it. Rows that had waited and went on with it count as rows of the layers that they ran."""
    rows, shares = one.tokens * one.batch, []
    for block, said in (("attn", one.attn), ("ffn", one.ffn)):
        ran = 0.0
        for i in resolve_layers(said, range(layers)) if one.routed is None else range(layers):
            own = one.tokens if one.rows is None else one.rows[i]
            own = own if one.routed is None else len(one.running_rows(i, block))
            ran += own / one.tokens + one.joined_tokens(i) / one.tokens
        shares.append(round(ran / layers, 4))
    # states; whoever unembeds them is heard
    alone = one.attn is not None and one.gap == "" and one.logits is not None
    read = rows if one.logits is None else one.logits
    return [one.lane, rows, *shares, 0 if alone else read]
