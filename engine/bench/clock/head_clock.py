"""Head clock: the time that the nets of draft heads take in a step, which no record of a pass holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from torch import Tensor

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.model.heads.base import Head
from decodescope.engine.session.load import Model


class HeadClock:
    """Times draft heads while a session of `model` and `drafts` decodes.

    It times every call of a head's net, every further function that the head `works` in, and every unembedding outside of a
    pass. Such an unembedding turns a feature that a head guessed into logits. A pass of the target or of a draft model has its
    own record.

    model, drafts: those given, weights shared;  drafts by role
    """

    def __init__(self, model: Model, drafts: Mapping[str, Model] | None = None):
        self.model = self._clock_model(model)
        self.drafts = {role: self._clock_model(x) for role, x in (drafts or {}).items()}
        self._executor = Executor(model.decoder.device)
        self._spans: list[tuple[Any, Any]] = []
        self._deep = 0
        self._work: tuple[Any, Sequence[Any]] = None, ()

    def _clock_model(self, model: Model) -> Model:
        return replace(model, decoder=_ClockedDecoder(model.decoder, self))

    def enter(self, work: Any = None, given: Sequence[Any] = ()) -> None:
        """Start timing; work that begins inside of it is part of it. work: a net or a method of it, and what it is `given`."""
        self._deep += 1
        if self._deep == 1:
            self._work = work, given
            self._began = self._executor.mark()

    def leave(self, counts: bool = True) -> None:
        """Stop timing; not `counts`: it was no work of heads."""
        self._deep -= 1
        if self._deep == 0 and counts:
            self._spans.append((self._began, self._executor.mark()))
            self.record_work(*self._work)

    def record_work(self, work: Any, given: Sequence[Any]) -> None:
        """Called when a `work` of heads has ended: for a clock that also records the call."""

    def time_calls(self, work: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Wrap `work` so that it reports to the clock when it begins and ends."""

        def told(*args: Any, **more: Any) -> Tensor:
            self.enter(work, args)
            try:
                return work(*args, **more)
            finally:
                self.leave()

        return told

    def take_us(self) -> float:
        """Microseconds since the last call of this."""
        spans, self._spans = self._spans, []
        return sum(self._executor.elapsed_us(begin, end) for begin, end in spans)


C = TypeVar("C", bound=HeadClock)


class _ClockedDecoder(Decoder):
    """A decoder that reports the work of its heads to a clock."""

    def __init__(self, decoder: Decoder, clock: HeadClock):
        self.share(decoder)
        self.clock = clock

    def forward(self, *args: Any, **more: Any) -> Tensor:
        self.clock.enter()
        try:
            return super().forward(*args, **more)
        finally:
            self.clock.leave(counts=False)

    def states_before(self, *args: Any, **more: Any) -> Tensor:
        self.clock.enter()
        try:
            return super().states_before(*args, **more)
        finally:
            self.clock.leave(counts=False)

    def unembed(self, feature: Tensor) -> Tensor:
        return self.clock.time_calls(super().unembed)(feature)


@contextmanager
def attach_clock(clock: C) -> Iterator[C]:
    """Attach the clock to its models' draft heads; on leaving, the heads are as they were."""
    models = (clock.model, *clock.drafts.values())
    heads = [cast(Head, head) for model in models for head in model.decoder.heads.values()]
    with ExitStack() as hooks:
        for net in [net for head in heads for net in (head, *(getattr(head, "words", None) or ()))]:
            hooks.callback(net.register_forward_pre_hook(clock.enter).remove)
            hooks.callback(net.register_forward_hook(lambda *args: clock.leave(), always_call=True).remove)
        for head in heads:
            for name in head.works:
                setattr(head, name, clock.time_calls(getattr(head, name)))
                hooks.callback(delattr, head, name)
        yield clock
