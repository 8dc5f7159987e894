"""Alphabet: the texts of a model's ids reach a sampler; they are computed on demand, and once per model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bytewise
import torch
import toys
from torch import Tensor

from decodescope.engine import Method, Session
from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.bases.state import StoppingCriteria
from decodescope.engine.decoding.values.alphabet import Alphabet
from decodescope.engine.methods.samplers.chain import Chain
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.batch.decode import BatchSettings, decode_batch


@component
class Uppercase(Sampler):
    """Removes every id with a lower-case letter in its bytes; its state is the alphabet that it was given."""

    stateful = True

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> Any:
        return alphabet

    def warp(self, logits: Tensor, state: Alphabet | None) -> Tensor:
        if state is None:
            return logits
        gone = torch.tensor([any(97 <= x <= 122 for x in piece) for piece in state.pieces])
        return logits.masked_fill(gone, -torch.inf)


class Counting(Tokenizer):
    """Counts the requests for a token's bytes."""

    asked = 0

    def bytes_of(self, token: int) -> bytes:
        self.asked += 1
        return super().bytes_of(token)


def counted():
    """A lively model with a tokenizer that counts."""
    model = bytewise.lively()
    model.tokenizer.__class__ = Counting
    return model


def small(model, tokens: list[int]) -> bool:
    """Whether the bytes of the tokens contain a lower-case letter."""
    return any(97 <= x <= 122 for token in tokens for x in model.tokenizer.bytes_of(token))


def started(model, sampler: Sampler, **more) -> Session:
    return Session(model, Method(sampler=sampler), [65, 66, 67], max_new_tokens=40, **more)


def test_a_sampler_is_told_bytes_and_stops_and_a_run_that_does_not_ask_pays_nothing() -> None:
    model = counted()
    session = toys.finish_session(started(model, Temperature()))
    assert session.alphabet.vocab == 257 and "pieces" not in vars(model), "no table is made"
    session = started(model, Chain(stages=[Temperature(), Uppercase()]), stop_tokens=[7, 9])
    told = session.sampler_state[1]
    assert told is session.alphabet and told.stops == {7, 9} and told.marks == {bytewise.END}
    assert told.pieces == [model.tokenizer.bytes_of(x) for x in range(257)]
    toys.finish_session(session)
    assert len(session.end.tokens) == 40 and not small(model, session.end.tokens)
    assert small(model, toys.finish_session(started(model, Temperature())).end.tokens), (
        "the test needs letters to be removed"
    )


def test_one_table_for_all_runs_of_a_model_and_for_branches_of_a_run() -> None:
    model = counted()
    sessions = [started(model, Uppercase()) for _ in range(3)]
    tables = [x.alphabet.table() for x in sessions]
    assert model.tokenizer.asked == 257 and all(x is tables[0] for x in tables)
    sessions[0].step()
    assert sessions[0].branch().sampler_state is sessions[0].alphabet


def test_a_batch_tells_the_same_and_nobody_tells_of_a_model_without_a_tokenizer() -> None:
    model = bytewise.lively()
    asked = BatchSettings(sampler=Uppercase(), max_new=6, stop=StoppingCriteria())
    texts = decode_batch(model, [[65, 66], [67, 68, 69]], asked).texts
    assert len(texts) == 2 and not any(small(model, text.tokens) for text in texts)
    alone = toys.finish_session(
        Session(model, Method(sampler=Uppercase()), [65, 66], max_new_tokens=6, stop_tokens=())
    )
    assert texts[0].tokens == alone.end.tokens
    assert started(replace(model, tokenizer=None), Uppercase()).sampler_state is None
