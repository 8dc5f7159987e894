"""Step explainer: one step of a trace, and the arithmetic behind each of its verdicts, in the words of its rule."""

from __future__ import annotations

from decodescope.engine.core.tree import depths
from decodescope.engine.trace import Step, Trace, TraceError
from decodescope.engine.trace.checks.decisions import StepTrials, rule_at, step_trials, telling_at
from decodescope.engine.trace.records import parts
from decodescope.engine.trace.records.auxiliary_nodes import drafted_nodes
from decodescope.engine.trace.records.events import Trials
from decodescope.engine.trace.records.evidence import Also, Telling, is_given
from decodescope.lab.formatting.numbers import f, guesses_phrase, per_hundred, quote_token
from decodescope.lab.formatting.tokens import visible_token

from .choice_tally import format_weighted_sum, format_weighted_terms
from .details import secondary_tallies
from .draftless_step import explain_draftless_step
from .explanation import Explanation, ExplanationLine
from .residual import DistributionRow, distribution_rows, likelier_rows, residual_rows

ROOT = -1
FORMS = {"": f, "g": "{:g}".format, "of": per_hundred}  # formats of a number in a sentence


class StepExplainer:
    """One step under explanation."""

    def __init__(self, trace: Trace, step: Step):
        self.trace, self.step = trace, step
        rule = rule_at(trace.header, step.step)
        self.rule, self.knobs = str(rule.get("name", "")), rule
        self.telling = telling_at(trace.header, step.step) or Telling()
        self.tests = step_trials(trace.header, step)
        t = step.trials
        self.greedy = t is None or (all(u is None for u in t.u) and set(t.p) <= {0.0, 1.0})

    def node(self, node: int) -> Explanation:
        """The decision about one drafted node."""
        step = self.step
        if step.draft is None:
            raise TraceError(f"Step {step.step} has no draft to explain" + self._missing_reason())
        if not 0 <= node < len(step.draft.tokens):
            raise TraceError(
                f"Step {step.step} has no node {node}: it drafted {len(step.draft.tokens)}, counted from 0."
            )
        at = [] if step.trials is None else [i for i, tried in enumerate(step.trials.node) if tried == node]
        if not at:
            return self._explain_unreached(node)
        if node in (step.forced or []):
            return self._explain_forced(node, at[-1])
        tests = self.tests
        if tests is None:
            return self._explain_unknown_rule(node, at[-1])
        if tests.matching:
            return self._explain_exact_match(node, at[-1])
        if tests.telling.also is not None:
            return self._explain_second_test(tests, tests.telling.also, node, at[-1])
        return (
            self._explain_residual_test(node, at[-1])
            if tests.telling.rest
            else self._explain_by_rule(tests, node, at[-1])
        )

    def _explain_residual_test(self, node: int, i: int) -> Explanation:
        """u * q against the residual of the target's probability, and the residual after a rejection."""
        t, why = self._trials(), self._begin_explanation(node, i)
        p = t.p[i]
        r = t.r[i]
        q = t.q[i]
        u = t.u[i]
        ok = t.ok[i]
        before = self._count_refused_before(i)
        why.numbers = [("target", "p(x)", p)]
        if before:
            why.numbers.append(("residual", "r(x)", r))
        why.against = self.telling.threshold_text(owed=before > 0)
        why.numbers += [
            ("draft", "q(x)", q),
            ("threshold", why.against, r / q if q else None),
            ("draw", "u", u),
        ]
        name = "r" if before else "p"
        why.lines.append(self._proposal_line(node, p, q))
        if before:
            words = f"{guesses_phrase(before)} rejected here before it. "
            words += "What is left of the target's distribution, the residual, "
            why.lines.append(ExplanationLine(words + "gives this token", (f"r = {f(r)}",)))
        keep = min(1.0, r / q) if q else 1.0
        why.lines.append(
            ExplanationLine(
                self._acceptance_sentence(r, q),
                (f"min(1, {name} / q) = min(1, {f(r)} / {f(q)}) = {f(keep)}",),
            )
        )
        if u is None:
            why.agrees = ok == (r > 0) and not 0 < r < q
            why.test = f"{name} = {f(r)} {'> 0' if r > 0 else '= 0'}"
            sure = "it is certain to stay." if ok else "the target never writes it here."
            why.lines.append(ExplanationLine("No chance was needed: " + sure))
        else:
            why.agrees = ok == (u * q < r)
            why.box = (r, q, u)
            sign = "<" if u * q < r else "≥"
            why.test = f"u·q {sign} {name}:  {f(u * q)} {sign} {f(r)}"
            sums = (
                f"u·q = {f(u)} · {f(q)} = {f(u * q)} {sign} {f(r)} = {name}",
                "accepted" if ok else "rejected",
            )
            words = f"The run drew u, evenly between 0 and 1. The guess stays if u·q is below {name}."
            why.lines.append(ExplanationLine(words, sums))
        if ok:
            why.rows = distribution_rows(self.trace, self.step, self._parent_of(node))
            why.rows_title = "Both sampling distributions at this place"
        else:
            self._add_residual(why, i)
        why.then = self._describe_next_trial(i)
        return why

    def _add_residual(self, why: Explanation, i: int) -> None:
        """Add the residual of the target's distribution after the guess of trial `i` was rejected."""
        rows, left = residual_rows(self.trace, self.step, i)
        why.rows, why.rows_title = rows, "Residual distribution"
        if left is not None:
            before = self._count_refused_before(i)
            what = "max(0, r − q)" if before else "max(0, p − q)"
            words = "The draft's distribution is taken off the target's. What is left, the residual, is scaled to one."
            if self._is_onehot():
                what = "p without what was rejected"
                words = "The token is taken out of the target's distribution. What is left, the residual, is scaled to one."
            why.lines.append(ExplanationLine(words, (f"{what} sums to {f(left)}",)))
        elif not rows:
            why.lines.append(
                ExplanationLine("What was left after that many rejections is not in the record.")
            )

    def _explain_exact_match(self, node: int, i: int) -> Explanation:
        t = self._trials()
        why = self._begin_explanation(node, i)
        ok = self._trials().ok[i]
        assert self.step.draft is not None, "a trial is of a draft"
        why.agrees = ok == (t.p[i] == 1.0)
        rows = distribution_rows(self.trace, self.step, self._parent_of(node), plain=True)
        token = self.step.draft.tokens[node]
        own = [("model, before it", "p(x)", row.p) for row in rows if row.token == token]
        why.numbers = [("after the sampler", "p(x)", t.p[i]), *own]
        best = max((row for row in rows if row.token is not None), key=lambda row: row.p, default=None)
        why.lines.append(ExplanationLine(f"The draft proposed {quote_token(why.token)}."))
        if best is not None:
            at = depths(self.step.draft.parents)[node] - 1
            over = [x for token in self.step.emitted[at : at + 1] for x in likelier_rows(rows, token)]
            which = "its most likely token" if not over else "the likeliest of what that leaves"
            words = f"Under a greedy sampler the target has one choice, {which}, and nothing is drawn."
            sums = (
                f"p({best.text}) = {f(best.p)} is the largest, before the sampler"
                + " made it certain" * (not over),
            )
            why.lines.append(ExplanationLine(words, sums))
        why.test = "the same token" if ok else "another token"
        why.lines.append(
            ExplanationLine(
                "It is the same token, so it stays." if ok else "It is another token, so the guess goes."
            )
        )
        why.rows, why.rows_title = rows, "The target's distribution before the sampler"
        why.then = self._describe_next_trial(i)
        return why

    def _explain_by_rule(self, tests: StepTrials, node: int, i: int) -> Explanation:
        """A test with the numbers and sentences of its rule: against a draw, against a bound, or of a whole chain."""
        t = self._trials()
        why = self._begin_explanation(node, i)
        telling = tests.telling
        ok = t.ok[i]
        kept = node in (self.step.path or [])
        bounded, whole = tests.has_bound(i), tests.path == "last"
        why.numbers = self._rule_numbers(tests, i)
        if bounded:
            why.lines.append(
                ExplanationLine(
                    f"The target writes {quote_token(why.token)} here in {per_hundred(t.p[i])}.",
                    (f"p = {f(t.p[i])}",),
                )
            )
        else:
            why.lines.append(self._proposal_line(node, t.p[i], t.q[i]))
        why.lines += self._rule_lines(tests, i)
        why.agrees = tests.stays(i) == ok
        if whole:
            self._add_chain_verdict(why, tests, i, kept)
        else:
            self._add_token_verdict(why, tests, i)
        if tests.path == "longest" and ok and not kept:
            why.lines.append(
                ExplanationLine(
                    "It passed, but another path of passed tokens is longer, or as long and likelier."
                )
            )
            why.status, why.title = "unreached", "Passed, not taken"
        if tests.path == "copies":
            self._add_copy_verdict(why, ok, kept)
        if telling.close:
            why.lines.append(ExplanationLine(tests.format_sentence(i, telling.close, FORMS) or telling.close))
        place = tests.last_success - 1 if whole and not kept else self._parent_of(node)
        why.rows = distribution_rows(self.trace, self.step, place)
        why.rows_title = "Both sampling distributions at this place"
        if bounded:
            why.rows_title = "The target's distribution at this place"
        elif whole and not kept:
            why.rows_title = "Both sampling distributions where the block ends"
        why.then = self._describe_extra_token() if whole else self._describe_next_trial(i)
        return why

    def _add_token_verdict(self, why: Explanation, tests: StepTrials, i: int) -> None:
        """A test that decides alone: against a draw, or without one against a bound or 0."""
        telling = tests.telling
        num = tests.num(i)
        den = tests.den(i)
        u = self._trials().u[i]
        ok = self._trials().ok[i]
        if u is None:
            bounded = tests.has_bound(i)
            sign = ">" if tests.test_passes(i) else "≤"
            why.test = f"{telling.num} {sign} {telling.den if bounded else 0}:  {f(num)} {sign} {f(den) if bounded else 0}"
            why.lines.append(ExplanationLine("It passes." if ok else "It does not pass.", (why.test,)))
        else:
            why.box, why.against = (num, den, u), telling.threshold_text()
            sign = "<" if u * den < num else "≥"
            why.test = f"{self._scaled_draw(telling)} {sign} {telling.num}:  {f(u * den)} {sign} {f(num)}"
            why.lines.append(
                ExplanationLine(
                    "The run drew u, evenly between 0 and 1.", (why.test, "accepted" if ok else "rejected")
                )
            )

    def _add_chain_verdict(self, why: Explanation, tests: StepTrials, i: int, kept: bool) -> None:
        """A chain on which the tests decide together."""
        last = tests.last_success
        many = len(tests)
        num = tests.telling.num
        why.status, why.title = ("accept", "Accepted") if kept else ("reject", "Rejected")
        why.agrees = kept == (i < last) or (not kept and self.step.extra is None)
        why.test = f"the last success is at {last} of {many}"
        rows = []
        for k, u in enumerate(self._trials().u):
            a = tests.den(k) * (u or 0)
            b = tests.num(k)
            ok = tests.test_passes(k)
            rows.append(
                f"{k + 1}:  u = {f(a)} {'<' if ok else '≥'} {f(b)} = {num}" + ("   success" if ok else "")
            )
        words = "Every place has a test. The last success counts and repairs the failures above it."
        why.lines.append(ExplanationLine(words, tuple(rows)))
        why.lines.append(
            ExplanationLine(f"So {last} of {many} tokens stay, this one {'with them' if kept else 'not'}.")
        )

    def _add_copy_verdict(self, why: Explanation, ok: bool, kept: bool) -> None:
        """A token that several chains hold."""
        if ok and not kept and self.step.extra is not None:
            why.status, why.title = "unreached", "Accepted, a copy taken"
            why.lines.append(
                ExplanationLine(
                    "It was accepted, but the path goes on in another chain that holds the same token."
                )
            )
        if kept and not ok:
            why.status, why.title = "accept", "Rejected, its copy accepted"
            why.lines.append(
                ExplanationLine(
                    "The same token of another chain was accepted after it, and the path goes on in this one."
                )
            )

    def _explain_second_test(self, tests: StepTrials, also: Also, node: int, i: int) -> Explanation:
        """The usual test, and another reason that may keep a token that it rejects."""
        t = self._trials()
        why = self._begin_explanation(node, i)
        telling = tests.telling
        num = tests.num(i)
        den = tests.den(i)
        u = t.u[i]
        ok = t.ok[i]
        kept = tests.test_passes(i)
        value, bound = tests.value(i, also.value), tests.value(i, also.bound)
        why.agrees = None if tests.stays(i) is None else ok == tests.stays(i)
        why.numbers = [("target", "p(x)", t.p[i]), ("draft", "q(x)", t.q[i])]
        why.numbers += [(also.word, also.value, value), ("bound", also.bound, bound)]
        why.lines.append(self._proposal_line(node, t.p[i], t.q[i]))
        if u is None:
            why.lines.append(
                ExplanationLine(f"The target's choice is {'this' if kept else 'another'} token.")
            )
        else:
            why.numbers.append(("draw", "u", u))
            why.box, why.against = (num, den, u), telling.threshold_text()
            sums = (
                f"{self._scaled_draw(telling)} = {f(u * den)} {'<' if kept else '≥'} {f(num)} = {telling.num}",
            )
            why.lines.append(ExplanationLine(f"The usual test {'keeps it' if kept else 'refuses it'}.", sums))
        why.test = "kept by the usual test"
        if not kept and value is not None and bound is not None:
            sign = ">" if value > bound else "≤"
            asked = tests.format_sentence(i, also.asked, FORMS) or also.asked
            why.lines.append(
                ExplanationLine(asked, (f"{also.value} = {f(value)} {sign} {f(bound)} = {also.bound}",))
            )
            why.test = f"{also.value} {sign} {also.bound}:  {f(value)} and {f(bound)}"
        if ok and not kept:
            why.lines.append(ExplanationLine(also.spared))
        why.rows = distribution_rows(self.trace, self.step, self._parent_of(node), plain=u is None)
        why.rows_title = "Both sampling distributions at this place"
        why.then = self._describe_next_trial(i)
        return why

    def _explain_unknown_rule(self, node: int, i: int) -> Explanation:
        """A verdict of a rule without a known description."""
        t, why = self._trials(), self._begin_explanation(node, i)
        why.numbers = [("target", "p(x)", t.p[i]), ("draft", "q(x)", t.q[i]), ("draw", "u", t.u[i])]
        why.lines.append(self._proposal_line(node, t.p[i], t.q[i]))
        why.lines.append(
            ExplanationLine(
                f"How {self.rule or 'its rule'} decides is not in the record: the verdict is shown as recorded."
            )
        )
        why.rows = distribution_rows(self.trace, self.step, self._parent_of(node))
        why.rows_title = "Both sampling distributions at this place"
        why.then = self._describe_next_trial(i)
        return why

    def _rule_numbers(self, tests: StepTrials, i: int) -> list[tuple[str, str, float | None]]:
        """The numbers of a test, as its rule lists them."""
        telling, rows = tests.telling, list[tuple[str, str, float | None]]()
        for one in telling.numbers:
            symbol = tests.format_sentence(i, one.symbol, FORMS) or {
                "num": telling.num,
                "den": telling.den,
            }.get(one.value, one.value)
            rows.append((one.word, symbol, tests.value(i, one.value)))
        t, owed = self._trials(), self._count_refused_before(i) > 0
        if not rows:
            rows = [
                ("target", "p(x)", t.p[i]),
                *([("residual", "r(x)", t.r[i])] if owed else []),
                ("draft", "q(x)", t.q[i]),
            ]
            rows += [
                ("threshold", telling.threshold_text(owed), tests.value(i, "num / den")),
                ("draw", "u", t.u[i]),
            ]
        return rows

    def _rule_lines(self, tests: StepTrials, i: int) -> list[ExplanationLine]:
        """The rule's own sentences with their sums; a sum with a missing number is left out."""
        lines = []
        for line in tests.telling.lines:
            sums = [tests.format_sentence(i, x.text, FORMS) for x in line.sums if tests.knobs_match(x.given)]
            if (words := tests.format_sentence(i, line.words, FORMS)) is not None:
                lines.append(ExplanationLine(words, tuple(x for x in sums if x is not None)))
        return lines

    @staticmethod
    def _scaled_draw(telling: Telling) -> str:
        """u times its factor, in symbols."""
        return f"u·{telling.den}" if telling.den else "u"

    def _explain_forced(self, node: int, i: int) -> Explanation:
        """A verdict that was set beforehand, in a fork."""
        t, why = self._trials(), self._begin_explanation(node, i)
        why.title += ", forced"
        why.numbers = [("target", "p(x)", t.p[i]), ("draft", "q(x)", t.q[i])]
        why.lines.append(
            ExplanationLine(
                "This verdict was forced in a fork: nothing was tested, and the text follows no distribution."
            )
        )
        why.rows = distribution_rows(self.trace, self.step, self._parent_of(node))
        why.rows_title = "Both sampling distributions at this place"
        why.then = self._describe_next_trial(i)
        return why

    def _explain_unreached(self, node: int) -> Explanation:
        explained = self._begin_explanation(node, None)
        explained.status, explained.title = "unreached", "Not reached"
        if node in (self.step.draft.passengers or () if self.step.draft is not None else ()):
            explained.title = "Passenger"
            explained.lines.append(
                ExplanationLine(
                    "It rode the pass for later drafts: it is never tried, and no rule hears of it."
                )
            )
            return explained
        t = self.step.trials
        verdicts = {} if t is None else dict(zip(t.node, t.ok, strict=True))
        draft = self.step.draft
        assert draft is not None
        place = draft.parents[node]
        if t is None:
            why = "No trial of this step was recorded."
        elif place != ROOT and not verdicts.get(place, False):
            gone = "was rejected" if place in verdicts else "was not reached either"
            why = f"It continues {self._quote_node(place)} (node {place}), which {gone}."
        else:
            why = "Another guess at the same place was accepted before its turn came."
        explained.lines = [
            ExplanationLine(
                why + " The target computed its distribution all the same: that is the price of a wide draft."
            )
        ]
        explained.numbers = [] if self._is_onehot() else [("draft", "q(x)", draft.q[node])]
        return explained

    # ---- the target's own token

    def extra(self) -> Explanation:  # noqa: PLR0915
        """The origin of the step's token from the target itself."""
        step, x = self.step, self.step.extra
        if (own := explain_draftless_step(self.trace, step)) is not None:
            return own
        if x is None:
            raise TraceError(f"Step {step.step} has no token of the target's own" + self._missing_reason())
        place = step.path[-1] if step.path else ROOT
        status = x.origin if x.origin in ("bonus", "target", "draft") else "resample"
        model = "small model" if status == "draft" else "target"
        again = status == "resample" and x.u is not None
        title = "Drawn again" if again else f"The {model}'s token"
        if status == "bonus":
            title = "Bonus token"
        why = Explanation(
            status,
            title,
            visible_token(x.token, self.trace.pieces),
            self._describe_place(place),
            self._rule_name(),
        )
        rows = distribution_rows(self.trace, step, place, plain=self.greedy and x.u is None)
        if status == "draft":
            why.lines.append(ExplanationLine("The small model wrote it by itself: nobody checked it."))
        why.lines += [ExplanationLine(*one) for one in secondary_tallies(self.trace.header, step, str)]
        if step.choices:
            last = step.choices[-1]
            sums = f"{format_weighted_terms(last, last.chosen)} = {last.sum_terms(last.chosen):.3f}"
            why.lines.append(
                ExplanationLine(
                    f"The distribution here is not the target's own but {format_weighted_sum(last)}:", (sums,)
                )
            )
        if x.u is None:
            sure = self.telling.likeliest is not None and is_given(self.telling.likeliest, self.knobs)
            why.lines.append(_undrawn_token_line(model, rows, x.token, sure))
            law = "" if sure else " before the sampler"
            why.rows, why.rows_title = rows, f"The {model}'s distribution" + law
            best = max((row for row in rows if row.token is not None), key=lambda row: row.p, default=None)
            why.agrees = None if best is None or step.sampler is not None else best.token == x.token
            why.test = "the most likely token"
            return why
        refused = [
            i
            for i, ok in enumerate(self._trial_results())
            if not ok and self._parent_of(self._trials().node[i]) == place
        ]
        if x.origin in ("residual", "correction") and refused and self.telling.rest:
            words = f"{guesses_phrase(len(refused))} rejected at this place. "
            words += "The token is drawn from the residual, what is left of "
            why.lines.append(ExplanationLine(words + "the target's distribution."))
            left, total = residual_rows(self.trace, step, refused[-1])
            why.rows, why.rows_title = (
                (left, "What was left") if left else (rows, "Both sampling distributions at this place")
            )
            if total is not None:
                why.lines.append(
                    ExplanationLine(
                        "What is left is scaled to one.", (f"the rest sums to {f(total)} before",)
                    )
                )
        elif x.origin == "residual" and self.telling.left:
            ends = "The block ends here." if self.telling.path == "last" else "No guess stayed here."
            why.lines.append(
                ExplanationLine(f"{ends} The token comes from {self.telling.left} the target's distribution.")
            )
            why.rows, why.rows_title = rows, "Both sampling distributions at this place"
        elif x.origin == "bonus":
            words = "Every guess on the way was accepted. The same pass gave the target's distribution after the last one too, "
            why.lines.append(ExplanationLine(words + "so one more token is free."))
            why.rows, why.rows_title = rows, "The target's distribution"
        else:
            why.lines.append(ExplanationLine(f"The {model} draws one token from its own distribution."))
            why.rows, why.rows_title = rows, f"The {model}'s distribution"
        span = x.high - x.low
        why.numbers = [
            ("draw", "u", x.u),
            ("from", "low", x.low),
            ("to", "high", x.high),
            ("probability", "high − low", span),
        ]
        why.agrees = x.low - 1e-12 <= x.u < x.high + 1e-12
        why.test = f"{f(x.low)} ≤ {f(x.u)} < {f(x.high)}"
        words = (
            "All tokens lie side by side, each as wide as it is likely. u falls into the stretch of this one."
        )
        why.lines.append(ExplanationLine(words, (why.test, f"high − low = {f(span)}, its probability")))
        return why

    # ---- words

    def _begin_explanation(self, node: int, i: int | None) -> Explanation:
        draft = self.step.draft
        assert draft is not None
        where = f"node {node}, depth {depths(draft.parents)[node]}"
        if i is not None:
            siblings = sum(draft.parents[x] == draft.parents[node] for x in drafted_nodes(draft))
            if siblings > 1:
                where += f", tried {self._count_refused_before(i) + 1} of {siblings}"
        where += " " + self._describe_place(self._parent_of(node))
        ok = i is not None and self._trials().ok[i]
        status, title = ("accept", "Accepted") if ok else ("reject", "Rejected")
        return Explanation(
            status, title, visible_token(draft.tokens[node], self.trace.pieces), where, self._rule_name()
        )

    def _proposal_line(self, node: int, p: float, q: float) -> ExplanationLine:
        words = f"The draft proposed {self._quote_node(node)}"
        words += (
            " without a draw, so it counts as certain."
            if self._is_onehot()
            else f", and it does so in {per_hundred(q)}."
        )
        words += f" The target writes it in {per_hundred(p)}" + " after its greedy sampler" * self.greedy
        return ExplanationLine(words + ".", (f"q = {f(q)}    p = {f(p)}",))

    def _acceptance_sentence(self, r: float, q: float) -> str:
        if r >= q:
            return "The target wants it at least as often as it is proposed, so every such guess may stay."
        if r <= 0:
            return "The target never writes it here, so no such guess may stay."
        share = f"So {f(100 * r, 3)} of every {f(100 * q, 3)} such guesses may stay; "
        return share + "if more did, the text would hold too many."

    def _describe_next_trial(self, i: int) -> str:
        t = self._trials()
        if i + 1 < len(t.node):
            ok, node = t.ok[i + 1], t.node[i + 1]
            return f"Then {self._quote_node(node)} (node {node}): {'accepted' if ok else 'rejected'}"
        return self._describe_extra_token()

    def _describe_extra_token(self) -> str:
        x = self.step.extra
        return (
            ""
            if x is None
            else f"Then the target's own token: {quote_token(visible_token(x.token, self.trace.pieces))}"
        )

    def _describe_place(self, place: int) -> str:
        if place != ROOT:
            return f"after {self._quote_node(place)}"
        before = self.trace.header.prompt.tolist()
        if self.step.step > 0 and self.trace.steps[self.step.step - 1].emitted:
            before = self.trace.steps[self.step.step - 1].emitted
        return (
            f"after {quote_token(visible_token(int(before[-1]), self.trace.pieces))}"
            if before
            else "at the beginning"
        )

    def _rule_name(self) -> str:
        if self.step.draft is None:
            return "no draft"
        if self.greedy and (self.tests is None or self.tests.matching):
            return "exact matching (greedy)"
        return f"{self.rule}, {self.step.draft.proposal.replace('_', ' ')}"

    def _missing_reason(self) -> str:
        if self.trace.header.levels == ["summary"]:
            return ': it was recorded at the level "summary". Record with level="decisions".'
        if self.step.extra is None and self.step.draft is not None:
            uses = parts.part_description(self.trace.header, "strategy").get("uses", ())
            # the strategy judges itself, while the draft goes on
            ahead = "drafter" in uses and "acceptance" not in uses
            whole = ahead and len(self.step.path or []) == len(self.step.draft.tokens)
            return (
                ": all was accepted, the draft had gone on already."
                if whole
                else ": the text ended before it was drawn."
            )
        return "."

    # ---- records

    def _trials(self) -> Trials:
        assert self.step.trials is not None
        return self.step.trials

    def _trial_results(self) -> list[bool]:
        return [] if self.step.trials is None else self.step.trials.ok

    def _quote_node(self, node: int) -> str:
        assert self.step.draft is not None
        return quote_token(visible_token(self.step.draft.tokens[node], self.trace.pieces))

    def _parent_of(self, node: int) -> int:
        assert self.step.draft is not None
        return self.step.draft.parents[node]

    def _is_onehot(self) -> bool:
        return self.step.draft is not None and self.step.draft.proposal == "onehot"

    def _count_refused_before(self, i: int) -> int:
        t = self._trials()
        return sum(not t.ok[j] and self._parent_of(t.node[j]) == self._parent_of(t.node[i]) for j in range(i))


def _undrawn_token_line(model: str, rows: list[DistributionRow], token: int, sure: bool) -> ExplanationLine:
    """How a token was taken without a draw: by a rule that adds the `sure` token, or by a greedy sampler."""
    if sure or not (over := likelier_rows(rows, token)):
        whose = "This rule adds what is surest" if sure else "The sampler is greedy"
        return ExplanationLine(f"{whose}: the {model}'s most likely token is taken, and nothing is drawn.")
    words = f"The sampler is greedy: of what it leaves of the {model}'s distribution the likeliest is taken, and nothing is"
    return ExplanationLine(
        f"{words} drawn.",
        (" > ".join(f"p({row.text}) = {f(row.p)}" for row in over) + ", before the sampler",),
    )
