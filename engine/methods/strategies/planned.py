"""Planning-guided decoding: a tree search for the text that passes the most tests."""

from __future__ import annotations

from decodescope.engine.core.arithmetic import cases_in, passed
from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import moved
from decodescope.engine.decoding.shared.linewise import said as written
from decodescope.engine.trace.details.searched import Planner, Rollout, Search, said

from .shared.beginnings import Beginning, Beginnings


@component
class Planned(Strategy):
    """Look for the text that passes the most `tests`, by Monte-Carlo tree search over tokens (PG-TD). A node is a beginning
    of texts; its candidates are the `k` likeliest next tokens, with probabilities P made to sum to 1. A rollout goes from
    the empty beginning down by P-UCB (engine/trace/details/searched.py has the formula, with `c` and `base`) to a
    token that was
    not tried, which becomes a node; the greedy text behind it is completed and judged, and its reward, the share of the
    tests passed, is told to all nodes on the way, which keep the largest. The first text with the best reward is written,
    after `rollouts` of them, at a reward of 1, or when nothing is left to try. One rollout is greedy decoding, and so is a
    run without tests.

    A test is a line: a value, or values of names and a value, "a = 2, b = 3: 8". The text, of an equation the last side, is
    evaluated as arithmetic by a parser of our own (engine/core/arithmetic.py, as LabBench scores); nothing is executed. Of
    a model without a tokenizer ids 0 to 9 are digits, and 10 to 12 + * and =.

    Every beginning is read once, whichever rollouts pass it: there are as many passes, of one row, as beginnings were read,
    1 for the prompt's last token and at most rollouts x length more. Their entries lie in one cache, each held once, until
    the end. So a completion is used again by all nodes that lie on it, as the authors' cache of sequences does.

    Beside the authors' code: a completion is greedy, their beam of one, which is their default; a node is closed, and not
    visited again, when its text has ended or all its candidates are closed, so that a set of k^length texts is gone through
    after as many rollouts as it has beginnings; they visit it again. Their tests run programs. The whole search is one
    step.
    """

    title = "PG-TD: planning-guided decoding"
    source = (
        "Zhang et al. 2023, arXiv:2303.05510 [recalled]; "
        "shunzh/Code-AI-Tree-Search, dyna_gym/agents/mcts.py, uct.py, generate/uct.py"
    )
    lossless = False
    changes = "the text that passes the most tests is kept"

    tests: str = param(
        "", lines=True, most=4000, help="one a line: a value, or a = 2, b = 3: 8; empty for none"
    )
    rollouts: int = param(16, low=1, high=1024, unit="texts", help="completed and judged, at most")
    k: int = param(3, low=1, high=32, unit="tokens", help="candidates of a node")
    c: float = param(4.0, low=0.0, high=100.0, step=0.1, help="c, weight of what was little tried")
    base: float = param(
        10.0, low=0.1, high=1e6, step=0.1, help="c_base, in how that weight grows with visits"
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        try:
            cases_in(self.tests)
        except ValueError as error:
            return (
                f"planned.tests: {error} Write a value a line, or choose numbers for names: a = 2, b = 3: 8."
            )
        return None

    def begin(self, s: State) -> None:
        s.target.ask(Needs())

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        texts = Beginnings(s, self.k)
        search, last = self._search(s, texts)
        texts.leave(last[search.best])
        verified = clock.mark()
        emitted = search.rollouts[search.best].tokens
        s.tokens += emitted
        return moved(s, emitted, last[search.best].ends, started, verified, search=search)

    def _search(self, s: State, texts: Beginnings) -> tuple[Search, list[Beginning]]:
        """The search, and where each of its texts ends."""
        pieces, cases = s.stop.pieces, cases_in(self.tests)
        most = self.rollouts if cases else 1
        search = Search(offers=[texts.root.offers], priors=[texts.root.priors])
        planner = Planner(search, self.c, self.base)
        places = [texts.root]
        last = list[Beginning]()
        while (why := planner.over(most)) is None:
            s.between(s.target.name)(len(last), most)
            parent, token = planner.select()
            before = texts.read
            place = texts.behind(places[parent], token)
            places.append(place)
            node = planner.bear(parent, token, place.offers, place.priors, place.ends or "")
            last.append(texts.completed(place))
            tokens = last[-1].tokens
            judged = said(
                tokens, sorted(s.stop.tokens), None if pieces is None else lambda ids: written(pieces, ids)
            )
            search.rollouts.append(Rollout(node, tokens, passed(judged, cases), texts.read - before))
            planner.reward(node, search.rollouts[-1].reward)
        rewards = [x.reward for x in search.rollouts]
        search.best, search.why = rewards.index(max(rewards)), why
        return search, last
