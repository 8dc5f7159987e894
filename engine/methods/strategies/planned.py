"""Planning-guided decoding: a tree search for the text that passes the most tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from decodescope.engine.core.arithmetic import check_cases, parse_cases
from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.line_writer import decode_text as written
from decodescope.engine.trace.detail_checks.tree_search import SearchReplay, end_reason, judged_text
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Growth,
    NodeOutcome,
    Outcome,
    Sentence,
    TallyForm,
    Term,
    TreeForm,
)
from decodescope.engine.trace.details.shapes import Detail, TallyDetail, TreeDetail

from .shared.beginnings import Beginning, Beginnings

BETA = "(log((N + ucb_base + 1) / ucb_base) + ucb_constant)"
READ = "Each is the greedy text behind a new beginning; in all {total} tokens were read."
BEGUN = "from its token {begun} on, {read} tokens read"

JUDGED_TEXTS = TallyForm(
    title="A search for a text",
    number="tests passed",
    bar="the best",
    value="reward",
    says=[
        Sentence("the best of 1 text was written", given={"rows": 1}),
        Sentence("the best of {rows} texts was written"),
    ],
    row=[Sentence("{text}")],
    outcomes={
        "written": Outcome(True, "most", [Sentence(f"written; {BEGUN}")]),
        "as_good": Outcome(True, "most", [Sentence(f"as good, later; {BEGUN}")]),
        "fewer": Outcome(False, "most", [Sentence(f"passes fewer; {BEGUN}")]),
    },
    lines=[
        Sentence(f"{READ} A text passed all tests.", given={"why": "solved"}),
        Sentence(f"{READ} No more texts were allowed.", given={"why": "rollouts"}),
        Sentence(f"{READ} Nothing was left to try.", given={"why": "exhausted"}),
    ],
    columns=[
        DetailColumn("text", "tokens"),
        DetailColumn("passed", "numbers"),
        DetailColumn("reward", "number"),
        DetailColumn("begun", "number"),
        DetailColumn("read", "number"),
        DetailColumn("outcome", "text"),
    ],
    values=[
        DetailColumn("best", "number"),
        DetailColumn("most", "number"),
        DetailColumn("total", "number"),
        DetailColumn("cases", "number"),
        DetailColumn("why", "text"),
    ],
    at="best",
)

BEGINNINGS = TreeForm(
    title="A search for a text",
    noun="text",
    nouns="texts",
    columns=[
        DetailColumn("token", "token"),
        DetailColumn("outcome", "text"),
        DetailColumn("offers", "tokens"),
        DetailColumn("priors", "numbers"),
        DetailColumn("visits", "number"),
        DetailColumn("value", "number"),
    ],
    outcomes={
        "open": NodeOutcome("open"),
        "exhausted": NodeOutcome("ended", [Sentence("closed: nothing left behind it")]),
        "stop_token": NodeOutcome("ended", [Sentence("closed: text ends")]),
        "max_new_tokens": NodeOutcome("ended", [Sentence("closed: text is full")]),
        "context_full": NodeOutcome("ended", [Sentence("closed: text is full")]),
    },
    number="reward",
    worth=[Sentence("{100 * reward:0} % of the tests")],
    short=[Sentence("{100 * reward:0} %")],
    about=[
        Sentence("There are no tests", given={"cases": 0}),
        Sentence("It passes {cases * reward:0} of 1 test", given={"cases": 1}),
        Sentence("It passes {cases * reward:0} of {cases} tests", where="cases >= 2"),
        Sentence("1 token read for it", given={"read": 1}),
        Sentence("{read} tokens read for it", where="read != 1"),
    ],
    won="Written",
    root="the empty beginning",
    judged="judged_texts",
    text="text",
    growth=Growth(
        candidates="offers",
        priors="priors",
        visits="visits",
        values="value",
        closed="exhausted",
        score=f"q + {BETA} * p * log(N) ** 0.5 / (1 + n)",
        terms=[
            Term("P", "p", "share"),
            Term("N", "n", "g"),
            Term("Q", "q", tried=True, bar=True),
            Term("+", f"{BETA} * p * log(N) ** 0.5 / (1 + n)", bar=True),
        ],
        says="The largest Q + β P √ln N(s) / (1 + N) is followed: Q is the best reward behind a candidate, "
        "N how often it was passed, P its probability among these; "
        "β = ln((N(s) + {ucb_base:g} + 1) / {ucb_base:g}) + {ucb_constant:g}.",
        scale=["none", "all tests"],
        title="The search behind {upto} texts: the best passes {100 * best:0} % of the tests",
        chosen="chosen with Q 0 + {score:3} for P {p:3}",
        now="N {visits}, Q {value:3}",
    ),
    check="tree_search",
)


@dataclass
class _Rollout:
    """A completed and judged text.

    place: the beginning behind which it was completed;  last: its end;  passed: results by test;  read: tokens read for it
    """

    place: Beginning
    last: Beginning
    passed: list[bool]
    read: int

    @property
    def reward(self) -> float:
        """The share of the tests that the text passes; 0 without tests."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0


@component
class Planned(Strategy):
    """Look for the text that passes the most `tests`, by Monte-Carlo tree search over tokens (PG-TD).

    A node is a beginning of texts. Its candidates are the `top_k` likeliest next tokens, with probabilities P normalised (their
    sum is 1). A rollout descends from the empty beginning by P-UCB (`BEGINNINGS.growth.score`, with `ucb_constant` and
    `ucb_base`) to an untried token, which becomes a node. The text behind it is completed greedily and judged. Its reward is
    the share of the passed tests; all nodes on the path keep the largest reward. The search ends after `rollouts` of them, at a
    reward of 1, or when nothing is left to try. It writes the first text with the best reward. One rollout is greedy decoding,
    and so is a run without tests.

    A test is a line: a value, or values of names and a value, "a = 2, b = 3: 8". The text, or the last side of an equation, is
    evaluated as arithmetic by the project's own parser (engine/core/arithmetic.py, as LabBench scores). Nothing is executed.
    For a model without a tokenizer, ids 0 to 9 are digits, and 10 to 12 are + * and =.

    Every beginning is read once, whichever rollouts pass it. There is one pass of one row per beginning read: 1 for the
    prompt's last token and at most rollouts x length more. One cache holds each entry once, until the end. So all nodes on a
    completion reuse it, as with the authors' cache of sequences.

    Compared with the authors' code: a completion is greedy, their default beam of one. A node is closed, and not visited again,
    when its text has ended or all its candidates are closed. So a set of k^length texts is exhausted after as many rollouts as
    it has beginnings; the authors visit closed nodes again. Their tests run programs. The whole search is one step.
    """

    title = "PG-TD: planning-guided decoding"
    source = (
        "Zhang et al. 2023, arXiv:2303.05510, abstract; "
        "shunzh/Code-AI-Tree-Search, dyna_gym/agents/mcts.py, uct.py, generate/uct.py"
    )
    lossless = False
    changes = "the text that passes the most tests is kept"
    details: ClassVar = {"beginnings": BEGINNINGS, "judged_texts": JUDGED_TEXTS}

    tests: str = param(
        "",
        lines=True,
        most=4000,
        help="tests, one per line: a value, or names and a value (a = 2, b = 3: 8); empty: none",
    )
    rollouts: int = param(
        16, low=1, high=1024, unit="texts", help="maximum number of texts that are completed and tested"
    )
    top_k: int = param(
        3, low=1, high=32, unit="tokens", help="number of most likely next tokens that each node tries (k)"
    )
    ucb_constant: float = param(
        4.0,
        low=0.0,
        high=100.0,
        step=0.1,
        help="exploration constant of P-UCB (c); larger values try more of the rarely visited tokens",
    )
    ucb_base: float = param(
        10.0,
        low=0.1,
        high=1e6,
        step=0.1,
        help="base of P-UCB (c_base); the larger, the more slowly exploration grows with visits",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        try:
            parse_cases(self.tests)
        except ValueError as error:
            return (
                f"planned.tests: {error} Write a value a line, or choose numbers for names: a = 2, b = 3: 8."
            )
        return None

    def begin(self, s: State) -> None:
        s.target.set_needs(Needs())

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        texts = Beginnings(s, self.top_k)
        grown, places, rounds = self._search(s, texts)
        rewards = [one.reward for one in rounds]
        best = rounds[rewards.index(max(rewards))]
        texts.keep_only(best.last)
        verified = clock.mark()
        emitted = best.last.tokens
        s.tokens += emitted
        details = self._record(grown, places, rounds)
        return plain_move(s, emitted, best.last.ends, started, verified, details=details)

    def score(self, p: float, q: float, n: int, parent: int) -> float:
        """The score of a candidate, from its prior, its value and visits, and the visits of its node."""
        beta = math.log((parent + self.ucb_base + 1) / self.ucb_base) + self.ucb_constant
        score: float = q + beta * p * math.log(parent) ** 0.5 / (1 + n)
        return score

    def _search(self, s: State, texts: Beginnings) -> tuple[SearchReplay, list[Beginning], list[_Rollout]]:
        """The tree, the beginning of each of its nodes, and the judged texts."""
        pieces, cases = s.stop.pieces, parse_cases(self.tests)
        most = self.rollouts if cases else 1
        grown = SearchReplay(self.score, texts.root.offers, texts.root.priors)
        places, rounds = [texts.root], list[_Rollout]()
        rewards = list[float]()
        while end_reason(rewards, grown.closed[0], most) is None:
            s.chunk_callback(s.target.name)(len(rounds), most)
            parent, token = grown.select()
            before = texts.read
            place = texts.extend(places[parent], token)
            places.append(place)
            node = grown.add_node(parent, token, place.offers, place.priors)
            last = texts.complete(place)
            judged = judged_text(
                last.tokens,
                sorted(s.stop.tokens),
                None if pieces is None else lambda ids: written(pieces, ids),
            )
            rounds.append(_Rollout(place, last, check_cases(judged, cases), texts.read - before))
            rewards.append(rounds[-1].reward)
            grown.reward(node, rewards[-1])
        return grown, places, rounds

    def _record(self, grown: SearchReplay, places: list[Beginning], rounds: list[_Rollout]) -> list[Detail]:
        """The trace record of the tree and its texts."""
        rewards = [one.reward for one in rounds]
        best, most = rewards.index(max(rewards)), max(rewards)
        words = ["as_good" if reward == most else "fewer" for reward in rewards]
        words[best] = "written"
        cases = parse_cases(self.tests)
        closed = zip(places, grown.closed, strict=True)
        tree: dict[str, list[Any]] = {
            "token": grown.tokens,
            "outcome": [place.ends or ("exhausted" if shut else "open") for place, shut in closed],
            "offers": grown.candidates,
            "priors": grown.priors,
            "visits": grown.visits,
            "value": grown.values,
        }
        judged: dict[str, list[Any]] = {
            "text": [one.last.tokens for one in rounds],
            "passed": [one.passed for one in rounds],
            "reward": rewards,
            "begun": [one.place.depth for one in rounds],
            "read": [one.read for one in rounds],
            "outcome": words,
        }
        values = {
            "best": best + 1,
            "most": most,
            "total": sum(one.read for one in rounds),
            "cases": len(cases),
            "why": end_reason(rewards, grown.closed[0], self.rollouts if cases else 1),
        }
        return [
            TreeDetail("beginnings", grown.parents, tree),
            TallyDetail("judged_texts", judged, values),
        ]
