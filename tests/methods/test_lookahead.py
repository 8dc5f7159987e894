"""Lookahead decoding: window, pool and rows follow the paper, cells and guesses are separate, the text is the target's."""

from __future__ import annotations

import random

import pytest
import torch
import toys

from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.replay.whatif import WhatIfChange, derive
from decodescope.engine.trace import check
from decodescope.engine.trace.records.auxiliary_nodes import drafted_depths
from decodescope.lab.reports.report import count_report

COUNT = 40


def run(window: int = 5, ngram: int = 4, guesses: int = 5, count: int = COUNT, sampler="greedy", **more):
    knobs = {"window": window, "ngram": ngram, "guesses": guesses, **more}
    return toys.decode(toys.method(drafter=("lookahead", knobs), sampler=sampler), count=count)


@torch.inference_mode()
def after(decoder: Decoder, text: list[int]) -> int:
    """The target's choice after `text`, read alone."""
    return int(decoder.forward(Feed.causal_chain(text, 0), None)[0, -1].argmax())


class Authors:
    """The window and the pool in the official code's form: lists of levels, and a list of tuples for each first token."""

    def __init__(self, decoder: Decoder, prompt: list[int], w: int, n: int, g: int):
        self.decoder, self.text, self.w, self.n, self.g = decoder, list(prompt), w, n, g
        chance = Chance(0)
        drawn = [chance.uniform(len(prompt) + i, "init") for i in range(w + n - 3)]
        self.past: list[list[int] | None] = [
            [prompt[int(u * len(prompt))] for u in drawn],
            *([None] * (n - 2)),
        ]
        self.pool: dict[int, list[tuple[int, ...]]] = {}

    def seen(self, level: int, j: int) -> list[int]:
        """The tokens that cell (level, j) sees; j counts the columns, and the last token is the first of level 0."""
        back = [self.text[-1], *self.past[0]][: j + 1]
        return [*self.text, *back[1:], *(self.past[x][j] for x in range(1, level + 1))]

    def step(self) -> int:
        """Run one pass; return how many tokens it wrote."""
        last = self.text[-1]
        filled = sum(x is not None for x in self.past) - 1
        columns = len(self.past[0]) + 1
        new = [after(self.decoder, self.seen(filled, j)) for j in range(columns)]
        held = list(self.pool.get(last, []))
        if self.n > 2 and self.past[1] is None:
            self.past[0], self.past[1] = self.past[0][1:], new[1:]
        elif self.past[self.n - 2] is None:
            for level in range(filled + 1):
                self.past[level] = self.past[level][1:]
            self.past[filled + 1] = new[1:]
        else:
            keys = [last, *self.past[0]]
            for j in range(self.w):
                value = (*(self.past[x][j] for x in range(1, self.n - 1)), new[j])
                of = self.pool.setdefault(keys[j], [])
                if value in of:
                    of.remove(value)
                of.append(value)
                del of[: max(0, len(of) - self.g)]
            self.past = [*self.past[1:], new]
            self.past[0] = self.past[0][1:]
        best = [after(self.decoder, self.text)]
        for guess in held:
            wrote = [after(self.decoder, self.text)]
            for token in guess:
                if token != wrote[-1]:
                    break
                wrote.append(after(self.decoder, [*self.text, *wrote]))
            best = max(best, wrote, key=len)
        self.text += best
        return len(best)


@pytest.mark.parametrize(("w", "n", "g"), [(5, 4, 5), (3, 3, 2), (4, 2, 3), (1, 3, 4), (2, 5, 1)])
def test_window_and_pool_are_those_of_the_authors_code(w: int, n: int, g: int) -> None:
    """Computed again with the official lists, every cell read alone.

    The end of the text, where ours drops columns, is left out.
    """
    decoder = toys.pair()[0].decoder
    session = run(w, n, g, count=COUNT + 20)
    due = Authors(decoder, toys.PROMPT, w, n, g)
    tried = 0
    for step in session.sink.steps:
        if step.n - len(toys.PROMPT) > COUNT - n:
            break
        cells = [] if step.draft is None else [step.draft.tokens[x] for x in step.draft.passengers or ()]
        assert cells == [x for level in due.past for x in level or []]
        told = (step.draft.notes or {}) if step.draft is not None else {"tried": 0, "pool": 0}
        held = due.pool.get(due.text[-1], [])
        assert told["tried"] == len(held) and told["pool"] == sum(map(len, due.pool.values()))
        if step.draft is not None:
            assert step.drafted == len({x[:k] for x in held for k in range(1, n)})
        assert len(step.emitted) == due.step() and session.tokens[: len(due.text)] == due.text
        tried += len(held)
    assert tried > 5, "the test needs guesses"


def test_text_is_greedy_for_any_window_any_n_and_any_pool() -> None:
    decoder, pick = toys.pair()[0].decoder, random.Random(3)
    due, saved = toys.greedy_text(decoder, toys.PROMPT, COUNT), 0
    for _ in range(14):
        w, n, g = pick.randint(1, 9), pick.randint(2, 7), pick.randint(0, 8)
        session = run(w, n, g, pool_from_prompt=pick.random() < 0.5)
        assert (
            session.end.tokens == due
            and check(session.sink).ok
            and toys.matches_fresh_reading(session.target)
        )
        saved += len(session.sink.steps) < COUNT
    assert saved > 5, "guesses save passes"


def test_a_pass_reads_as_many_rows_as_the_paper_says_less_what_guesses_share() -> None:
    w, n = 6, 4
    for step in run(w, n, 5).sink.steps[n - 2 :]:
        if step.n - len(toys.PROMPT) > COUNT - w - n:
            break
        chains = {tuple(x) for x in paths(step.draft)}
        shared = (n - 1) * len(chains) - step.drafted
        assert len(chains) == step.draft.notes["tried"] and shared >= 0
        assert step.passes[-1].tokens == (n - 1) * (w + len(chains)) - shared


def test_while_the_window_fills_its_levels_have_fewer_and_more_columns() -> None:
    rows = [step.passes[-1].tokens for step in run(5, 6, 0).sink.steps[:6]]
    assert rows == [(f + 1) * (5 + 6 - 2 - f) for f in range(5)] + [5 * 5]


def paths(draft) -> list[list[int]]:
    """The guesses of a record, from their leaves."""
    inner, made = set(draft.parents), []
    for node in range(len(draft.tokens) - len(draft.passengers or ())):
        if node not in inner:
            path, at = [], node
            while at >= 0:
                path, at = [draft.tokens[at], *path], draft.parents[at]
            made.append(path)
    return made


def test_without_guesses_every_pass_writes_one_token() -> None:
    session = run(guesses=0)
    assert [len(step.emitted) for step in session.sink.steps] == [1] * COUNT
    assert all(step.drafted == 0 and step.origins == ["target"] for step in session.sink.steps)


@torch.inference_mode()
def test_neither_a_guess_nor_a_cell_moves_the_other_s_logits() -> None:
    session, changed = run(pool_from_prompt=True, count=20), 0
    decoder = session.target.decoder
    for step in session.sink.steps[4:10]:
        draft = step.draft
        aside = set(draft.passengers)
        mine = Draft(
            draft.tokens, draft.parents, acceptable=[x not in aside for x in range(len(draft.tokens))]
        )
        text = session.tokens[: step.n]

        def read(tokens: list[int], mine: Draft = mine, text: list[int] = text) -> torch.Tensor:
            feed = Draft(tokens, mine.parents).build_feed(text[-1], len(text) - 1)
            whole = Feed.causal_chain(text, 0)
            rows = torch.cat([whole.tokens, feed.tokens[:, 1:]], 1)
            places = torch.cat([whole.positions, feed.positions[:, 1:]], 1)
            seen = torch.ones(rows.shape[1], rows.shape[1], dtype=torch.bool).tril()
            seen[len(text) :, len(text) :] = feed.visible[0, 1:, 1:]
            return decoder.forward(Feed(rows, places, seen[None]), None)[0, len(text) :]

        was = read(mine.tokens)
        for node in range(len(mine)):
            other = list(mine.tokens)
            other[node] = (other[node] + 1) % decoder.vocab
            moved = (read(other) != was).any(-1).nonzero()[:, 0].tolist()
            assert moved and {x in aside for x in moved} == {node in aside}
            changed += 1
    assert changed > 60


def test_a_guess_that_matches_to_its_end_gives_n_tokens() -> None:
    assert max(len(step.emitted) for step in run(5, 4, 5).sink.steps) == 4


def test_the_pool_holds_g_ngrams_a_token_and_tells_what_came() -> None:
    session = run(4, 3, 2)
    assert all(len(x) <= 2 for x in session.drafter._pool.values())
    for step in session.sink.steps[1:-8]:
        assert len(step.draft.notes["harvested"]) == 4 and all(
            len(x) == 3 for x in step.draft.notes["harvested"]
        )
    assert "harvested" not in session.sink.steps[0].draft.notes, "the window still fills"


@pytest.mark.parametrize("sampler", ["greedy", ("temperature", {"temperature": 0.9})])
def test_nobody_counts_the_window_as_drafted(sampler) -> None:
    """Report, bench and record count the guesses; what-if never tries an auxiliary node."""
    session = run(4, 3, 4, sampler=sampler)
    trace = session.sink
    guesses = sum(
        0 if x.draft is None else len(x.draft.tokens) - len(x.draft.passengers or ()) for x in trace.steps
    )
    made = count_report(trace)
    assert made.drafted == guesses == sum(x.drafted for x in trace.steps) > 20
    assert len(made.depths) <= 2, "guesses are two tokens long, and cells stand further behind the root"
    assert max(max(drafted_depths(x.draft), default=0) for x in trace.steps) <= 2
    for step in trace.steps[:12]:
        again = derive(trace.header, trace.steps[: step.step], step, 0, WhatIfChange())
        assert again.path == (step.path or [])
