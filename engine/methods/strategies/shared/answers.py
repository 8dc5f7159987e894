"""Answers: whole texts that a model writes behind a prompt, several at once, with the probabilities of their tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from decodescope.engine.decoding.bases.answers import Candidate
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.state import State
from decodescope.engine.decoding.shared.token_draw import draw_token
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.shared_prefix import share_prefix


@dataclass
class _AnswerWriter:
    """An answer in progress: its record, the sampler's state, its random numbers, and the states that wrote its tokens, if the
    lane's passes record them.
    """

    answer: Candidate
    state: Any
    chance: Chance
    states: list[torch.Tensor] = field(default_factory=list)


def write_answers(
    s: State, lane: Lane, prompt: list[int], copies: int, form: int, states: list[torch.Tensor] | None = None
) -> list[Candidate]:
    """Write `copies` answers to `prompt`, drawn by the run's sampler.

    Answer i of form f uses the random numbers of a run with the seed plus copies * f + i, so it is the text of that run of this
    model alone. Several answers hold and read the prompt once. Before each token the state's `between` gets the progress, and
    may end the run. states: receives the states that wrote each answer, float [A, d], if the lane's passes record them.
    """
    if len(prompt) > 1 and len(lane.tokens) < len(prompt) - 1:
        lane.read(prompt[:-1], "prefill", s.chunk_callback(lane.name))
    if copies > 1:
        share_prefix(lane.cache, copies)
    chances = [Chance(s.chance.seed + copies * form + i) for i in range(copies)]
    every = [_AnswerWriter(Candidate([], form), s.sampler_state, chance) for chance in chances]
    alive, between = list(every), s.chunk_callback(lane.name)
    for written in range(s.remaining_tokens):
        between(written, s.remaining_tokens)
        _write_next_tokens(s, lane, prompt, alive)
        going = [i for i, x in enumerate(alive) if not x.answer.ended]
        if not going:
            break
        if len(going) < len(alive):
            lane.cache.reorder(torch.tensor(going, device=lane.decoder.device))
            alive = [alive[i] for i in going]
    if states is not None:
        states += [torch.stack(x.states) for x in every if x.states]
    return [x.answer for x in every]


def _write_next_tokens(s: State, lane: Lane, prompt: list[int], alive: list[_AnswerWriter]) -> None:
    """Write one more token of each unfinished answer, in one pass."""
    written, device = len(alive[0].answer.tokens), lane.decoder.device
    at = len(prompt) - 1 + written
    roots = [x.answer.tokens[-1] if written else prompt[-1] for x in alive]
    feed = Feed(
        torch.tensor(roots, device=device)[:, None],
        torch.full((len(alive), 1), at, device=device),
        highest=at,
    )
    logits = lane.forward(feed, "draft")[:, 0]  # [B, V]
    lane.commit([0])
    law = logits.double().log_softmax(-1)
    bits = (-(law.exp() * law.clamp_min(-1e4)).sum(-1) / math.log(2)).tolist()
    tokens = []
    for i, (x, best) in enumerate(zip(alive, logits.argmax(-1).tolist(), strict=True)):
        token, x.state = draw_token(logits[i : i + 1], best, s.sampler, x.state, x.chance, at + 1)
        tokens.append(token)
    logp = law.gather(1, torch.tensor(tokens, device=device)[:, None])[:, 0].tolist()
    left = None if lane.probe is None else lane.probe.hidden.get("final")
    for i, (x, token, sure, spread) in enumerate(zip(alive, tokens, logp, bits, strict=True)):
        answer = x.answer
        if left is not None:
            x.states.append(left[i, -1])
        answer.ended = s.stop.find_stop(answer.tokens, [token]) is not None
        answer.tokens.append(token)
        answer.logp.append(sure)
        answer.bits.append(spread)
