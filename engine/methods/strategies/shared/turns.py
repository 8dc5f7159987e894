"""Turns of two models on one text: a model catches up on unread text when its turn comes."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from decodescope.engine.core.method_view import MethodView
from decodescope.engine.decoding.bases.acceptance import Cursor, match_greedy, verify_tokenwise
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.state import State
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.turns import LANES, Size


def lane_of(s: State, size: Size) -> Lane:
    """The lane of the small or the large model."""
    return s.target if size == "large" else s.lanes[LANES[size]]


def prefill_model(s: State, size: Size) -> None:
    """Let one model read the prompt, up to the root."""
    lane = lane_of(s, size)
    if s.prompt > 1:
        lane.read(s.tokens[:-1], "prefill", s.chunk_callback(lane.name))


def ask_lane(lane: Lane, tokens: list[int]) -> tuple[Tensor, int]:
    """The logits float [V] of a lane behind `tokens`, which begin with what it has read, and how many rows it caught up on.

    These are all rows but the last token's, in one block.
    """
    missed = len(tokens) - 1 - len(lane.tokens)
    if missed:
        return lane.read(tokens), missed
    feed = Feed.causal_chain(tokens[-1:], len(tokens) - 1, lane.decoder.device)
    logits = lane.forward(feed, "verify" if lane.name == "target" else "draft")[0, 0]
    lane.commit([0])
    return logits, 0


class TurnToken(NamedTuple):
    """A token of one model: logits float [1, V], how it was chosen, rows caught up on, the sampler's state before it, and the
    mark of the clock after the pass.
    """

    logits: Tensor
    verdict: Verdict
    caught: int
    before: Any
    at: Any


def write_token(s: State, size: Size) -> TurnToken:
    """The next token as plain decoding by one of the models draws it; it is not yet part of the text."""
    lane = lane_of(s, size)
    row, caught = ask_lane(lane, s.tokens)
    logits = row[None]
    cursor = Cursor(Draft(), logits, lane.best[-1:], s.sampler, s.sampler_state, len(s.tokens))
    verdict = match_greedy(Draft(), cursor) if cursor.greedy else verify_tokenwise(Draft(), cursor, s.chance)
    before = s.sampler_state
    assert verdict.token is not None
    s.sampler_state = cursor.state_after(verdict.token)
    verdict.origin = "target" if size == "large" else "draft"
    return TurnToken(logits, verdict, caught, before, s.target.executor.mark())


def write_ahead(s: State) -> tuple[list[int], list[float], int]:
    """Let the small model write greedily until its confidence is too low, the text ends, or the router's reach is exhausted.

    Returns its tokens, its largest probability at each tested place, and the number of rows that it caught up on.
    """
    lane = lane_of(s, "small")
    text = list(s.tokens)
    before = 0
    tokens: list[int] = []
    sure: list[float] = []
    for _ in range(min(s.router.reach, s.remaining_tokens)):
        logits, missed = ask_lane(lane, text)
        before += missed
        sure.append(float(logits.double().softmax(-1).amax()))
        if sure[-1] < s.router.tau:
            break
        token = lane.best[-1]
        ends = s.stop.find_stop(text[s.prompt :], [token]) is not None
        tokens.append(token)
        text.append(token)
        if ends:
            break
    return tokens, sure, before


def router_conflict(name: str, method: MethodView, what: str) -> str | None:
    """Why a router cannot decide on a token or an answer for the strategy `name`; None if it can."""
    router = method.router
    if what in router.of:
        return None
    about = {"token": "token by token", "answer": "about whole answers"}
    decides = about[next(iter(router.of))]
    return f"{name} asks {about[what]}, and the router {router.name} decides {decides}: choose the router entropy."
