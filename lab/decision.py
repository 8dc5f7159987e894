"""Decision: one step of a trace, and the arithmetic behind each of its verdicts, rule by rule."""

from __future__ import annotations

from ..engine.trace import Step, Trace, TraceError
from ..engine.trace.events import Trials
from ..engine.trace.forks import method_at
from .explanation import Explanation, Line
from .left import laws, left_over
from .saying import f, guesses, of_100, said
from .tokens import shown_id

ROOT = -1


class Case:
    """One step under explanation."""

    def __init__(self, trace: Trace, step: Step):
        self.trace, self.step = trace, step
        method = method_at(trace.header, step.step)
        self.rule = str(method.get("acceptance", {}).get("name", ""))
        self.bounds = method.get("acceptance", {})
        t = step.trials
        self.greedy = t is None or (all(u is None for u in t.u) and set(t.p) <= {0.0, 1.0})

    # ---- a drafted node

    def node(self, node: int) -> Explanation:
        """The decision about one drafted node."""
        step = self.step
        if step.draft is None:
            raise TraceError(f"Step {step.step} has no draft to explain" + self._why_not())
        if not 0 <= node < len(step.draft.tokens):
            raise TraceError(f"Step {step.step} has no node {node}: it drafted {len(step.draft.tokens)}, counted from 0.")
        at = [] if step.trials is None else [i for i, tried in enumerate(step.trials.node) if tried == node]
        if not at:
            return self._unreached(node)
        if node in (step.forced or []):
            return self._forced(node, at[-1])
        if self.rule == "typical" and step.rule is not None:
            return self._typical(node, at[-1])
        if self.rule == "block" and step.rule is not None:
            return self._block(node, at[-1])
        if self.rule in ("leniency", "spectr") and step.rule is not None:
            return self._eased(node, at[-1])
        if self.rule == "judge" and step.rule is not None:
            return self._judged(node, at[-1])
        if self.greedy:
            return self._exact(node, at[-1])
        return self._lossless(node, at[-1])

    def _lossless(self, node: int, i: int) -> Explanation:
        t, made = self._trials(), self._begin(node, i)
        p, r, q, u, ok = t.p[i], t.r[i], t.q[i], t.u[i], t.ok[i]
        before = self._refused_before(i)
        made.numbers = [("target", "p(x)", p)]
        if before:
            made.numbers.append(("still owed", "r(x)", r))
        made.numbers += [("draft", "q(x)", q), ("threshold", "r / q" if before else "p / q", r / q if q else None)]
        made.numbers.append(("draw", "u", u))
        name = "r" if before else "p"
        made.lines.append(self._proposed(node, p, q))
        if before:
            words = f"{guesses(before)} refused here before it. What they had their chance at is taken off the target's law; "
            made.lines.append(Line(words + "of this token the rest still owes", (f"r = {f(r)}",)))
        keep = min(1.0, r / q) if q else 1.0
        made.lines.append(Line(self._share(r, q), (f"min(1, {name} / q) = min(1, {f(r)} / {f(q)}) = {f(keep)}",)))
        if u is None:
            made.agrees = ok == (r > 0) and not 0 < r < q
            made.test = f"{name} = {f(r)} {'> 0' if r > 0 else '= 0'}"
            sure = "it is certain to stay." if ok else "the target never writes it here."
            made.lines.append(Line("No chance was needed: " + sure))
        else:
            made.agrees = ok == (u * q < r)
            made.box = (r, q, u)
            sign = "<" if u * q < r else "≥"
            made.test = f"u·q {sign} {name}:  {f(u * q)} {sign} {f(r)}"
            sums = (f"u·q = {f(u)} · {f(q)} = {f(u * q)} {sign} {f(r)} = {name}", "accepted" if ok else "rejected")
            words = f"The run drew u, evenly between 0 and 1. The guess stays if u·q is below {name}."
            made.lines.append(Line(words, sums))
        if ok:
            made.rows, made.rows_title = laws(self.trace, self.step, self._place(node)), "Both laws at this place"
        else:
            self._what_was_left(made, i)
        made.then = self._then(i)
        return made

    def _what_was_left(self, made: Explanation, i: int) -> None:
        """Of the target's law, after the guess of trial `i` was refused."""
        rows, left = left_over(self.trace, self.step, i)
        made.rows, made.rows_title = rows, "What the target wants instead"
        if left is not None:
            before = self._refused_before(i)
            what = "max(0, r − q)" if before else "max(0, p − q)"
            told = "The draft's chance at this place is taken off the target's law. The rest is owed, and is scaled to one."
            if self._onehot():
                what = "p without what was refused"
                told = "The token is taken out of the target's law. The rest is owed, and is scaled to one."
            made.lines.append(Line(told, (f"{what} sums to {f(left)}",)))
        elif not rows:
            made.lines.append(Line("What was left after that many refusals is not in the record."))

    def _exact(self, node: int, i: int) -> Explanation:
        t, made = self._trials(), self._begin(node, i)
        ok = t.ok[i]
        made.numbers = [("target's choice", "p(x)", t.p[i])]
        made.agrees = ok == (t.p[i] == 1.0)
        rows = laws(self.trace, self.step, self._place(node), plain=True)
        best = max((row for row in rows if row.token is not None), key=lambda row: row.p, default=None)
        made.lines.append(Line(f"The draft proposed {said(made.token)}."))
        if best is not None:
            words = "Under a greedy sampler the target has one choice, its most likely token, and nothing is drawn."
            sums = (f"p({best.text}) = {f(best.p)} is the largest, before the sampler made it certain",)
            made.lines.append(Line(words, sums))
        made.test = "the same token" if ok else "another token"
        made.lines.append(Line("It is the same token, so it stays." if ok else "It is another token, so the guess goes."))
        made.rows, made.rows_title = rows, "The target's law before the sampler"
        made.then = self._then(i)
        return made

    def _typical(self, node: int, i: int) -> Explanation:
        t, made, tops = self._trials(), self._begin(node, i), self.step.tops
        p, bound, ok = t.p[i], t.threshold[i], t.ok[i]
        made.numbers = [("target", "p(x)", p), ("bound", "b", bound)]
        made.agrees = ok == (p > bound)
        made.test = f"p {'>' if p > bound else '≤'} b:  {f(p)} {'>' if p > bound else '≤'} {f(bound)}"
        sums = ["b = min(ε, δ · exp(−H))"]
        epsilon, delta = self.bounds.get("epsilon"), self.bounds.get("delta")
        places = [] if tops is None else tops.places.tolist()
        entropies = (self.step.rule or {}).get("entropy", [])
        if self._place(node) in places and len(entropies) == len(places) and epsilon is not None:
            entropy = entropies[places.index(self._place(node))]
            sums.append(f"  = min({epsilon:g}, {delta:g} · exp(−{f(entropy)})) = {f(bound)}")
        made.lines.append(Line(f"The target writes {said(made.token)} here in {of_100(p)}.", (f"p = {f(p)}",)))
        words = "Typical acceptance keeps what is likely enough; the surer the target, the higher the bound."
        made.lines.append(Line(words, tuple(sums)))
        made.lines.append(Line("It passes." if ok else "It does not pass.", (made.test,)))
        if ok and node not in (self.step.path or []):
            made.lines.append(Line("It passed, but another path of passed tokens is longer, or as long and likelier."))
            made.status, made.title = "unreached", "Passed, not taken"
        made.lines.append(Line("This rule changes the text: what passes is kept as if it had been drawn."))
        made.rows, made.rows_title = laws(self.trace, self.step, self._place(node)), "The target's law at this place"
        made.then = self._then(i)
        return made

    def _block(self, node: int, i: int) -> Explanation:
        t, made, rule = self._trials(), self._begin(node, i), self.step.rule or {}
        w, h, u = rule["w"], rule["h"], rule["u"]
        last = max((k + 1 for k in range(len(h)) if u[k] < h[k]), default=0)
        kept = node in (self.step.path or [])
        made.status, made.title = ("accept", "Accepted") if kept else ("reject", "Rejected")
        made.agrees = kept == (i < last) or (not kept and self.step.extra is None)
        made.numbers = [("target", "p(x)", t.p[i]), ("draft", "q(x)", t.q[i]), ("weight", f"w{i + 1}", w[i + 1])]
        made.numbers += [("bound", f"h{i + 1}", h[i]), ("draw", f"u{i + 1}", u[i])]
        made.test = f"the last success is at {last} of {len(h)}"
        made.lines.append(self._proposed(node, t.p[i], t.q[i]))
        product = f"w{i + 1} = min(1, w{i} · p / q) = min(1, {f(w[i])} · {f(t.p[i])} / {f(t.q[i])}) = {f(w[i + 1])}"
        made.lines.append(Line("A weight goes down the block and says how well the whole of it is backed so far.", (product,)))
        sums = tuple(
            f"{k}:  u = {f(a)} < {f(b)} = h   success" if a < b else f"{k}:  u = {f(a)} ≥ {f(b)} = h"
            for k, (a, b) in enumerate(zip(u, h, strict=True), 1)
        )
        made.lines.append(Line("Every place has a test. The last success counts and repairs the failures above it.", sums))
        made.lines.append(Line(f"So {last} of {len(h)} tokens stay, this one {'with them' if kept else 'not'}."))
        place = last - 1 if not kept else self._place(node)
        made.rows, made.rows_title = laws(self.trace, self.step, place), "Both laws at this place"
        if not kept:
            made.rows_title = "Both laws where the block ends"
        made.then = self._then_extra()
        return made

    def _eased(self, node: int, i: int) -> Explanation:
        """The lossless test with one side changed: f(r) in place of r (leniency), rho q in place of q (k-SEQ)."""
        t, made, rule = self._trials(), self._begin(node, i), self.step.rule or {}
        p, r, q, u, ok = t.p[i], t.r[i], t.q[i], t.u[i], t.ok[i]
        made.numbers = [("target", "p(x)", p), ("draft", "q(x)", q)]
        made.lines.append(self._proposed(node, p, q))
        if self.rule == "leniency":
            ink, box, names = rule["f"][i], q, ("f", "q")
            form, epsilon = self.bounds.get("form", ""), self.bounds.get("epsilon", 1.0)
            made.numbers.insert(1, ("raised", "f", ink))
            what = {"square": f"r / {epsilon:g}²", "exponential": f"r^{epsilon:g}"}.get(form, f"r / {epsilon:g}")
            words = "Leniency raises what the target still owes before it is compared, so more guesses stay."
            made.lines.append(Line(words, (f"f = {what} = {f(ink)}    r = {f(r)}",)))
        else:
            place = sum(t.ok[:i])  # a success ends a place
            rho, k, share, best = (rule[name][place] for name in ("rho", "alive", "A", "optimum"))
            ink, box, names = p, rho * q, ("p", "rho·q")
            made.numbers.append(("spread", "rho", rho))
            words = f"{k} guesses share one threshold here: q counts rho-fold, so each stays a little less often."
            told = f"any of the {k} stays in {of_100(share)}; no rule does it in more than {of_100(best)}"
            made.lines.append(Line(words, (f"rho = {f(rho)}    rho·q = {f(box)}", told)))
        made.numbers += [
            ("threshold", "f / q" if names[0] == "f" else "p / (rho·q)", ink / box if box else None),
            ("draw", "u", u),
        ]
        made.agrees = u is not None and ok == (u * box < ink)
        if u is not None:
            made.box = (ink, box, u)
            sign = "<" if u * box < ink else "≥"
            made.test = f"u·{names[1]} {sign} {names[0]}:  {f(u * box)} {sign} {f(ink)}"
            made.lines.append(Line("The run drew u, evenly between 0 and 1.", (made.test, "accepted" if ok else "rejected")))
        kept = node in (self.step.path or [])
        if ok and not kept and self.step.extra is not None:
            made.status, made.title = "unreached", "Accepted, a copy taken"
            made.lines.append(Line("It was accepted, but the path goes on in another chain that holds the same token."))
        if kept and not ok:
            made.status, made.title = "accept", "Rejected, its copy accepted"
            made.lines.append(Line("The same token of another chain was accepted after it, and the path goes on in this one."))
        if self.rule == "leniency":
            made.lines.append(Line("This rule changes the text: more of the draft's likings stay than the target has."))
        made.rows, made.rows_title = laws(self.trace, self.step, self._place(node)), "Both laws at this place"
        made.then = self._then(i)
        return made

    def _judged(self, node: int, i: int) -> Explanation:
        """The lossless test, and the judge's answer where it fails."""
        t, made, rule = self._trials(), self._begin(node, i), self.step.rule or {}
        j, bound, p, q, u, ok = rule["j"][i], rule["t"], t.p[i], t.q[i], t.u[i], t.ok[i]
        kept = p > 0 if u is None else u * q < p
        made.agrees = ok == (kept or j > bound)
        made.numbers = [("target", "p(x)", p), ("draft", "q(x)", q), ("judge", "j", j), ("bound", "t", bound)]
        made.lines.append(self._proposed(node, p, q))
        if u is None:
            made.lines.append(Line(f"The target's choice is {'this' if kept else 'another'} token."))
        else:
            made.numbers.append(("draw", "u", u))
            made.box = (p, q, u)
            sums = (f"u·q = {f(u * q)} {'<' if kept else '≥'} {f(p)} = p",)
            made.lines.append(Line(f"The usual test {'keeps it' if kept else 'refuses it'}.", sums))
        if not kept:
            sign = ">" if j > bound else "≤"
            made.lines.append(Line(f"The judge finds it right in {of_100(j)}.", (f"j = {f(j)} {sign} {f(bound)} = t",)))
        made.test = "kept by the usual test" if kept else f"j {'>' if j > bound else '≤'} t:  {f(j)} and {f(bound)}"
        if ok and not kept:
            made.lines.append(Line("So it stays, though the target would not have written it: this rule changes the text."))
        made.rows, made.rows_title = laws(self.trace, self.step, self._place(node), plain=u is None), "Both laws at this place"
        made.then = self._then(i)
        return made

    def _forced(self, node: int, i: int) -> Explanation:
        """A verdict that was settled beforehand, in a fork."""
        t, made = self._trials(), self._begin(node, i)
        made.title += ", forced"
        made.numbers = [("target", "p(x)", t.p[i]), ("draft", "q(x)", t.q[i])]
        made.lines.append(Line("This verdict was forced in a fork: nothing was tested, and the text has no law's word."))
        made.rows, made.rows_title = laws(self.trace, self.step, self._place(node)), "Both laws at this place"
        made.then = self._then(i)
        return made

    def _unreached(self, node: int) -> Explanation:
        made = self._begin(node, None)
        made.status, made.title = "unreached", "Not reached"
        t = self.step.trials
        verdicts = {} if t is None else dict(zip(t.node, t.ok, strict=True))
        draft = self.step.draft
        assert draft is not None
        place = draft.parents[node]
        if t is None:
            why = "No trial of this step was recorded."
        elif place != ROOT and not verdicts.get(place, False):
            gone = "was refused" if place in verdicts else "was not reached either"
            why = f"It continues {self._token(place)} (node {place}), which {gone}."
        else:
            why = "Another guess at the same place was accepted before its turn came."
        made.lines = [Line(why + " The target computed its law all the same: that is the price of a wide draft.")]
        made.numbers = [("draft", "q(x)", draft.q[node])]
        return made

    # ---- the target's own token

    def extra(self) -> Explanation:
        """Where the target's own token of the step came from."""
        step, x = self.step, self.step.extra
        if step.iteration is not None:
            return self._iteration()
        if step.beams is not None:
            return self._beams()
        if x is None:
            raise TraceError(f"Step {step.step} has no token of the target's own" + self._why_not())
        place = step.path[-1] if step.path else ROOT
        status = x.origin if x.origin in ("bonus", "target") else "resample"
        again = status == "resample" and x.u is not None
        title = "Bonus token" if status == "bonus" else "Drawn again" if again else "The target's token"
        made = Explanation(status, title, shown_id(x.token, self.trace.pieces), self._after(place), self._rule_name())
        rows = laws(self.trace, step, place, plain=self.greedy and x.u is None)
        if x.u is None:
            made.lines.append(Line("The sampler is greedy: the target's most likely token is taken, and nothing is drawn."))
            made.rows, made.rows_title = rows, "The target's law before the sampler"
            best = max((row for row in rows if row.token is not None), key=lambda row: row.p, default=None)
            made.agrees = None if best is None or step.sampler is not None else best.token == x.token
            made.test = "the most likely token"
            return made
        refused = [i for i, ok in enumerate(self._tried()) if not ok and self._place(self._trials().node[i]) == place]
        if x.origin in ("residual", "correction") and refused and self.rule == "lossless":
            words = f"{guesses(len(refused))} refused at this place. The token comes from what is left of the target's law."
            made.lines.append(Line(words))
            left, total = left_over(self.trace, step, refused[-1])
            made.rows, made.rows_title = (left, "What was left") if left else (rows, "Both laws at this place")
            if total is not None:
                made.lines.append(Line("What is left is scaled to one.", (f"the rest sums to {f(total)} before",)))
        elif x.origin == "residual" and self.rule in ("leniency", "spectr"):
            owed = "what leniency left of" if self.rule == "leniency" else "what the guesses together left of"
            made.lines.append(Line(f"No guess stayed here. The token comes from {owed} the target's law."))
            made.rows, made.rows_title = rows, "Both laws at this place"
        elif x.origin == "residual" and self.rule == "block":
            words = "The block ends here. The token comes from what the accepted part left of the target's law."
            made.lines.append(Line(words))
            made.rows, made.rows_title = rows, "Both laws at this place"
        elif x.origin == "bonus":
            words = "Every guess on the way was accepted. The same pass also gave the target's law after the last one, "
            made.lines.append(Line(words + "so one more token is free."))
            made.rows, made.rows_title = rows, "The target's law"
        else:
            made.lines.append(Line("The target draws one token from its own law."))
            made.rows, made.rows_title = rows, "The target's law"
        width = x.high - x.low
        made.numbers = [("draw", "u", x.u), ("from", "low", x.low), ("to", "high", x.high)]
        made.numbers.append(("probability", "high − low", width))
        made.agrees = x.low - 1e-12 <= x.u < x.high + 1e-12
        made.test = f"{f(x.low)} ≤ {f(x.u)} < {f(x.high)}"
        words = "All tokens stand side by side, each as wide as it is likely. u falls into the stretch of this one."
        made.lines.append(Line(words, (made.test, f"high − low = {f(width)}, its probability")))
        return made

    # ---- strategies without a draft

    def _iteration(self) -> Explanation:
        """One pass of a fixed-point method: what did not change any more is final."""
        it = self.step.iteration
        assert it is not None
        texts = [shown_id(token, self.trace.pieces) for token in it.tokens]
        made = Explanation(
            "target", "One pass over a block", texts[0], f"{len(texts)} tokens from position {it.start}", "fixed point"
        )
        was = [shown_id(token, self.trace.pieces) for token in it.before or []]
        made.lines.append(Line("All tokens of the block were guessed, and one pass says what the target puts at each place."))
        if was:
            made.lines.append(Line("Before and after:", (" ".join(was), " ".join(texts))))
        words = "A token is final when everything before it is: then the target has read what it would have read anyway."
        made.lines.append(Line(words, (f"{it.fixed} of {len(texts)} are final after this pass",)))
        made.test = f"{it.fixed} of {len(texts)} final"
        return made

    def _beams(self) -> Explanation:
        """One step of beam search: the hypotheses that were kept."""
        b = self.step.beams
        assert b is not None
        texts = [shown_id(token, self.trace.pieces) for token in b.tokens]
        made = Explanation("target", "Beams kept", texts[0] if texts else "", f"{len(texts)} hypotheses", "beam search")
        kept = tuple(
            f"{rank}. {text}   continues hypothesis {parent + 1} of the step before, {score:.3f} nats"
            for rank, (text, parent, score) in enumerate(zip(texts, b.parents, b.scores, strict=True), 1)
        )
        made.lines.append(Line("The texts with the largest sums of log-probabilities stay; nothing is drawn.", kept))
        made.agrees = b.scores == sorted(b.scores, reverse=True)
        return made

    # ---- words

    def _begin(self, node: int, i: int | None) -> Explanation:
        draft = self.step.draft
        assert draft is not None
        depth, at = 1, draft.parents[node]
        while at != ROOT:
            depth, at = depth + 1, draft.parents[at]
        where = f"node {node}, depth {depth}"
        if i is not None:
            siblings = draft.parents.count(draft.parents[node])
            if siblings > 1:
                where += f", tried {self._refused_before(i) + 1} of {siblings}"
        where += " " + self._after(self._place(node))
        ok = i is not None and self._trials().ok[i]
        status, title = ("accept", "Accepted") if ok else ("reject", "Rejected")
        return Explanation(status, title, shown_id(draft.tokens[node], self.trace.pieces), where, self._rule_name())

    def _proposed(self, node: int, p: float, q: float) -> Line:
        token = self._token(node)
        if self._onehot():
            words = f"The draft proposed {token} without a draw, so it counts as certain."
        else:
            words = f"The draft proposed {token}, and it does so in {of_100(q)}."
        return Line(words + f" The target writes it in {of_100(p)}.", (f"q = {f(q)}    p = {f(p)}",))

    def _share(self, r: float, q: float) -> str:
        if r >= q:
            return "The target wants it at least as often as it is proposed, so every such guess may stay."
        if r <= 0:
            return "The target never writes it here, so no such guess may stay."
        share = f"So {f(100 * r, 3)} of every {f(100 * q, 3)} such guesses may stay; "
        return share + "if more did, the text would hold too many."

    def _then(self, i: int) -> str:
        t = self._trials()
        if i + 1 < len(t.node):
            ok, node = t.ok[i + 1], t.node[i + 1]
            return f"Then {self._token(node)} (node {node}): {'accepted' if ok else 'rejected'}"
        return self._then_extra()

    def _then_extra(self) -> str:
        x = self.step.extra
        return "" if x is None else f"Then the target's own token: {said(shown_id(x.token, self.trace.pieces))}"

    def _after(self, place: int) -> str:
        if place != ROOT:
            return f"after {self._token(place)}"
        before = self.trace.header.prompt.tolist()
        if self.step.step > 0 and self.trace.steps[self.step.step - 1].emitted:
            before = self.trace.steps[self.step.step - 1].emitted
        return f"after {said(shown_id(int(before[-1]), self.trace.pieces))}" if before else "at the beginning"

    def _rule_name(self) -> str:
        if self.step.draft is None:
            return "no draft"
        if self.greedy and self.step.rule is None:
            return "exact matching (greedy)"
        return f"{self.rule}, {self.step.draft.proposal.replace('_', ' ')}"

    def _why_not(self) -> str:
        if self.trace.header.levels == ["counts"]:
            return ': it was recorded at the level "counts". Record with level="decisions".'
        if self.step.extra is None and self.step.draft is not None:
            whole = "pearl" in (self.step.draft.notes or {}) and len(self.step.path or []) == len(self.step.draft.tokens)
            return ": all was accepted, the draft had gone on already." if whole else ": the text ended before it was drawn."
        return "."

    # ---- records

    def _trials(self) -> Trials:
        assert self.step.trials is not None
        return self.step.trials

    def _tried(self) -> list[bool]:
        return [] if self.step.trials is None else self.step.trials.ok

    def _token(self, node: int) -> str:
        assert self.step.draft is not None
        return said(shown_id(self.step.draft.tokens[node], self.trace.pieces))

    def _place(self, node: int) -> int:
        assert self.step.draft is not None
        return self.step.draft.parents[node]

    def _onehot(self) -> bool:
        return self.step.draft is not None and self.step.draft.proposal == "onehot"

    def _refused_before(self, i: int) -> int:
        t = self._trials()
        return sum(not t.ok[j] and self._place(t.node[j]) == self._place(t.node[i]) for j in range(i))
