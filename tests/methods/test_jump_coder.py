"""JumpCoder: lines are inserted if the text after them gains; without insertions the text is plain decoding's."""

from __future__ import annotations

import ast
import copy
import string
from collections.abc import Callable
from typing import Any

import bytewise
import pytest
import torch
import toys
from torch import Tensor

from decodescope.engine import MethodError, Session
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.shared.infiller import Gap, Infiller
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.records.events import Step
from decodescope.engine.trace.values.lines import (
    LineVerdict,
    line_gains,
    lowest_scored_lines,
    required_gain_count,
    settle_outcomes,
)
from decodescope.engine.trace.values.programs import (
    find_comment_lines,
    imported_names,
    parse_program,
    unbound_names,
)
from decodescope.lab.decision.tally import find_tally

HEAD, ZERO, ADD, BACK = "def f(x):\n", "    global t\n", "    t += x\n", "    return t\n"
MASK = 257
LETTERS = bytewise.letters()
ID = {letter: LETTERS.encode_plain(letter)[0] for letter in string.printable}
LETTER = {token: letter for letter, token in ID.items()}
Law = Callable[[str], dict[str, float]]


class Told(Decoder):
    """A causal model that adds given amounts to its own logits, depending on the text before each token."""

    law: Law
    texts: Callable[[], list[list[int]]]

    def forward(self, feed: Feed, *rest: Any) -> Tensor:
        logits = super().forward(feed, *rest)
        for row, text in enumerate(self.texts()):
            for letter, more in self.law(words(text)).items():
                logits[0, row, ID.get(letter, bytewise.END)] += more
        return logits


class Proposing(Decoder):
    """A masked model that writes a given line at every insertion point, depending on the text and the point's number."""

    told: Callable[[str, int], str]

    def forward(self, feed: Feed, *rest: Any) -> Tensor:
        logits = torch.zeros_like(super().forward(feed, *rest))
        masked = (feed.tokens[0] == MASK).nonzero().flatten().tolist()
        runs = [i for i in masked if i - 1 not in masked]
        for number, start in enumerate(runs):
            line = self.told(words(feed.tokens[0].tolist()), number) + "\n" * 60
            for i in (i for i in masked if start <= i and not any(start < x <= i for x in runs)):
                logits[0, feed.logits.index(i), ID[line[i - start]]] = 9.0
        return logits


def shared(cls: type[Decoder], other: Decoder) -> Any:
    made = cls.__new__(cls)
    made.share(other)
    return made


def target(law: Law) -> Model:
    made = bytewise.lively()
    made.decoder = shared(Told, toys.decoder(toys.toy_spec(vocab=257, heads=()), 5, torch.float64, sharp=0.2))
    made.decoder.law, made.decoder.texts = law, list
    return made


def infiller(told: Callable[[str, int], str]) -> Model:
    made = bytewise.lively()
    made.spec = toys.toy_spec(vocab=MASK + 1, heads=(), causal=False, mask_token=MASK, name="fills")
    made.decoder = shared(Proposing, toys.decoder(made.spec, 6, torch.float64))
    made.decoder.told = told
    return made


def follows(lines: dict[str, str], gains: Law = lambda text: {}) -> Law:
    """`lines` maps each line to the next one, and "" is the end; `gains` adds to the logit of the expected token."""

    def law(text: str) -> dict[str, float]:
        *before, part = text.split("\n")
        last = before[-1] + "\n" if before else ""
        due = lines.get(last, "")
        letter = due[len(part)] if due.startswith(part) and due != part else ""
        return {letter: 25.0 + gains(text).get(last, 0.0)}

    return law


def run(law: Law, told: Callable[[str, int], str], count: int = 80, **knobs: Any) -> Session:
    """A session that wrote after HEAD."""
    prompt = LETTERS.encode_plain(HEAD)
    method = toys.method(strategy=("jump_coder", {"max_infill_tokens": 20, "infill_passes": 1, **knobs}))
    models = {"infill": infiller(told)}
    session = Session(
        target(law), method, prompt, models=models, max_new_tokens=count, stop_tokens=[bytewise.END]
    )
    session.sink = Trace()

    def texts() -> list[list[int]]:
        alive = [] if session.scratch is None else session.scratch.text.branches.alive
        return [x.tokens[: i + 1] for x in alive for i in range(x.held, len(x.tokens))]

    session.target.decoder.texts = texts  # type: ignore[attr-defined] # defined by Told
    for _ in session.stream():
        rest = session.scratch.text.branches.alive
        assert len(rest) == 1 and session.target.cache.layers[0].n == rest[0].held, "what others read is gone"
    found = check(session.sink)
    assert found.ok and not found.notes, str(found)
    return session


def reread(law: Law, text: list[int]) -> Tensor:
    """Logits [T, V] of a whole text, computed without a cache."""
    decoder: Any = target(law).decoder
    decoder.texts = lambda: [text[: i + 1] for i in range(len(text))]
    return decoder.forward(Feed.causal_chain(text, 0), None)[0]


@torch.inference_mode()
def plain(law: Law, count: int = 80) -> list[int]:
    text, end = LETTERS.encode_plain(HEAD), len(HEAD) + count
    while len(text) < end and bytewise.END not in text:
        text.append(int(reread(law, text)[-1].argmax()))
    return text[len(HEAD) :]


def words(ids: list[int]) -> str:
    return "".join(LETTER.get(x, "") for x in ids)


def round_of(step: Step) -> TallyDetail:
    """The record of a step about its lines."""
    assert step.details and len(step.details) == 1
    return step.details[0]


def proposed(step: Step) -> list[dict[str, Any]]:
    """The lines that were proposed, row by row."""
    one = round_of(step)
    return [row for row in map(one.row, range(len(one))) if row["outcome"] != "written"]


def stood(session: Session) -> list[list[list[int]]]:
    """The lines before each round."""
    lines, out = list[list[int]](), []
    for step in session.sink.steps:
        out.append([*lines])
        taken = next((x for x in proposed(step) if x["outcome"] in ("inserted", "defines")), None)
        if taken is None:
            lines.append(round_of(step).columns["text"][-1])
        else:
            at = taken["at"]
            lines[at:] = [taken["text"], *lines[at : at + taken["stays"]]]
    return [*out, lines]


SUM = {HEAD: ADD, ZERO: ADD, ADD: BACK}
GAIN: Law = lambda text: {ZERO: 4.0, ADD: 4.0} if ZERO in text else {}  # noqa: E731
LAW = follows(SUM, GAIN)


def outcomes(session: Session) -> list[list[str]]:
    return [[x["outcome"] for x in proposed(step)] for step in session.sink.steps]


def test_a_line_by_which_the_others_gain_is_inserted_and_the_text_comes_at_the_end() -> None:
    session = run(LAW, lambda text, number: ZERO)
    assert words(session.end.tokens) == ZERO + ADD + BACK and session.end.tokens[-1] == bytewise.END
    assert words(plain(LAW)) == ADD + BACK, "without it the text is another one"
    assert outcomes(session) == [[], ["inserted"], ["repeated"] * 2, ["repeated"] * 3]
    assert [len(step.emitted) for step in session.sink.steps[:-1]] == [0] * 3, (
        "a line may come before any other until the end"
    )
    [taken] = proposed(session.sink.steps[1])
    [gain], stays = line_gains(round_of(session.sink.steps[1]).values["means"], taken["after"], 0.3)
    assert 3 < gain < 5 and stays == 1 and (taken["gaining"], taken["needed"], taken["gain"]) == (1, 1, gain)
    assert session.header.method["strategy"]["tau"] == 0.3 and "infill" in session.header.lanes


SORTS = [
    "    a = 1\n",
    ZERO,
    "    b = [\n",
    "    return 2\n",
    "    if x:\n",
    "    t -= x\n",
    "\n",
    "    c = t\n",
    "  d = 3\n",
]
WELCOME = {SORTS[0]: 2.0, ZERO: 4.0, SORTS[7]: 0.7, SORTS[8]: 9.0}


def sorts(text: str, number: int) -> str:
    """One of several sorts of lines, chosen by the length of the text."""
    return SORTS[(len(text) + 4 * number) % len(SORTS)]


def welcomed(text: str) -> dict[str, float]:
    """The gain of all later lines from some earlier lines."""
    gain = sum(more for line, more in WELCOME.items() if line in text)
    return dict.fromkeys([ADD, BACK, *WELCOME, "    t = x\n"], gain)


@torch.inference_mode()
@pytest.mark.parametrize("tau", [0.3, 0.0, 1.0])
def test_every_insertion_parses_and_raises_the_score_as_the_target_reads_it_anew(tau: float) -> None:
    law = follows({**SUM, BACK: "    t = x\n", "    t = x\n": ADD, **dict.fromkeys(WELCOME, BACK)}, welcomed)
    session = run(law, sorts, 160, tau=tau, infill_places=3)
    inserted = judged = 0
    for lines, step in zip(stood(session), session.sink.steps, strict=False):
        scores = means(law, lines)
        assert round_of(step).values["means"] == pytest.approx(scores, abs=1e-9)
        for x in proposed(step):
            at, stays, after = x["at"], x["stays"], x["after"]
            if after is None:
                continue
            judged += 1
            text = [*lines[:at], x["text"], *lines[at:]]
            assert after == pytest.approx(means(law, text)[at + 1 :], abs=1e-9)
            if x["outcome"] == "inserted":
                inserted += 1
                gains = [b - a for a, b in zip(scores[at:], after, strict=True)]
                assert min(gains[:stays]) >= tau and stays >= min(2, len(gains)) and 2 * stays >= len(gains)
                ast.parse(HEAD + words([token for line in text[: at + 1 + stays] for token in line]))
    told = {outcome for step in outcomes(session) for outcome in step}
    assert inserted and judged > inserted + 3 and {"score", "parse", "opens", "empty", "repeated"} <= told


def means(law: Law, lines: list[list[int]]) -> list[float]:
    """For each line the mean logit of its letters, computed on the text without a cache."""
    text = [*LETTERS.encode_plain(HEAD), *(token for line in lines for token in line)]
    logits, out, at = reread(law, text), [], len(HEAD)
    for line in lines:
        seen = [float(logits[at + i - 1, token]) for i, token in enumerate(line) if LETTER[token].strip()]
        out.append(sum(seen) / len(seen))
        at += len(line)
    return out


def test_without_an_insertion_the_text_is_plain_decodings_though_lines_were_read_beside_it() -> None:
    for knobs in ({"tau": 20.0}, {"infill_places": 0}):
        session = run(LAW, lambda text, number: "    a = 1\n", **knobs)
        assert session.end.tokens == plain(LAW)
    judged = run(LAW, lambda text, number: "    a = 1\n", tau=20.0)
    assert sum(x.count("score") for x in outcomes(judged)) == 3
    assert judged.sink.steps[1].passes[1].tokens == 1 + (1 + len("    a = 1\n") + len(ADD)), (
        "root, and the fork's own rows"
    )


def test_a_pass_reads_the_root_and_what_each_fork_has_for_itself_and_the_prefix_is_there_once() -> None:
    session = run(LAW, lambda text, number: f"    {'abcde'[number]} = 1\n", tau=20.0)
    step, lines = session.sink.steps[2], [ADD, BACK]
    target = [x for x in step.passes if x.lane == "target"]
    assert target[0].tokens == 1 + sum(1 + len("    a = 1\n") + len("".join(lines[i:])) for i in range(2))
    assert [x.phase for x in step.passes if x.lane == "infill"] == ["draft"], "all gaps in one pass"
    assert target[0].held == len(HEAD + ADD + BACK) - 1


def test_a_line_that_does_not_gain_goes_with_all_behind_it() -> None:
    tail = "    x = t\n"
    gains: Law = lambda text: {HEAD: 4.0, ZERO: 4.0, ADD: 4.0, BACK: -4.0} if ZERO in text else {}  # noqa: E731
    law = follows({**SUM, BACK: tail}, gains)
    session = run(law, lambda text, number: ZERO if tail in text and number == 0 else "\n")
    at = next(i for i, x in enumerate(outcomes(session)) if "inserted" in x)
    lines = [[words(x) for x in lines] for lines in stood(session)]
    assert lines[at] == [ADD, BACK, tail] and lines[at + 1] == [ZERO, ADD, BACK]
    assert words(session.end.tokens) == ZERO + ADD + BACK + tail, "what went is written anew"


def test_an_import_is_inserted_where_its_name_is_lacking_whatever_the_scores_say() -> None:
    back = "    return math.pi\n"
    for line, outcome in (("    import math\n", "defines"), ("    import os\n", "unneeded")):
        session = run(
            follows({HEAD: back, "    import math\n": back}), lambda text, number, line=line: line, tau=20.0
        )
        assert outcomes(session)[1] == [outcome]
        assert words(session.end.tokens) == (line if outcome == "defines" else "") + back


def test_nothing_is_proposed_before_comments_and_after_the_last_round() -> None:
    law = follows({HEAD: '    """\n', '    """\n': "    #t\n", "    #t\n": ADD, ADD: BACK})
    session = run(law, lambda text, number: "    a = 1\n", tau=20.0, max_infill_rounds=4)
    assert not any(proposed(step) for step in session.sink.steps) and session.steps > 4


def test_check_derives_what_was_decided() -> None:
    session = run(LAW, lambda text, number: ZERO)

    def found(change: Callable[[Any], Any]) -> str:
        trace = copy.deepcopy(session.sink)
        change([step.details for step in trace.steps])
        return str(check(trace))

    def entry(step: int, name: str, row: int, value: Any) -> Callable[[Any], Any]:
        return lambda rounds: rounds[step][0].columns[name].__setitem__(row, value)

    def value(name: str, told: Any) -> Callable[[Any], Any]:
        return lambda rounds: rounds[1][0].values.__setitem__(name, told)

    first = round_of(session.sink.steps[1])
    after = [x - 9 for x in first.columns["after"][0]]
    lies = [
        ("before line 0 is recorded as 'inserted', and 'score' follows", entry(1, "after", 0, after)),
        ("before line 1 is recorded as 'similar', and 'repeated' follows", entry(2, "outcome", 1, "similar")),
        ("before the lines [0, 0], and [0, 1] scored lowest", entry(2, "at", 1, 0)),
        ("but the lines are", lambda x: x[2][0].columns["text"][-1].pop()),
        ("and {'first': ", entry(1, "gain", 0, 99.0)),
        ("and {'first': ", entry(1, "needed", 0, 0)),
        ("and {'first': ", entry(1, "first", 0, None)),
        ("it leaves 0 lines behind", entry(1, "stays", 0, 0)),
        ("it names the place 1 of 1 lines", value("place", 1)),
        ("it scores 2 and 1 lines, where 1 stood", value("first_logits", [1.0, 2.0])),
        ("scores that are no numbers", value("means", [float("nan")])),
        ("scores that are no numbers", value("means", None)),
        ("that cannot be there", entry(1, "at", 0, 7)),
        ("that cannot be there", entry(1, "at", 0, 0.0)),
        ("that cannot be there", entry(1, "after", 0, [float("inf")])),
        ("that cannot be there", entry(1, "after", 0, [])),
        ("lacks tokens", entry(1, "text", 0, None)),
        ("lacks columns", lambda x: x[1][0].columns.pop("stays")),
        ("it records 2 rounds", lambda x: x[1].append(x[1][0])),
        ("it records 0 rounds", lambda x: x[1].clear()),
        ("it did not write or insert one line", entry(1, "outcome", 0, "score")),
        ("in an order that cannot be", entry(1, "outcome", 0, "score")),
        ("outside the vocabulary", lambda x: x[2][0].columns["text"][0].append(9999)),
        ("must have a list in each row", entry(1, "after", 0, 3.0)),
        ("without an outcome", entry(1, "outcome", 0, "written")),
    ]
    for said, lie in lies:
        assert said in found(lie), (said, found(lie))
    right = found(lambda rounds: None)
    assert right.startswith("The trace agrees with itself") and "6 proposed lines" in right


def test_a_line_that_defines_a_name_is_not_judged_by_scores_where_another_came() -> None:
    defines = LineVerdict("defines", 1, float("inf"))
    less, score = LineVerdict("less", 1, 2.0), LineVerdict("score")
    assert settle_outcomes([less, defines, defines, score]) == ["less", "defines", "also", "score"]
    assert settle_outcomes([less, score, less]) == ["inserted", "score", "less"]
    back = "    return math.pi + os.x\n"
    told = ("    import math\n", "    import os\n")
    law = follows({HEAD: back, **dict.fromkeys(told, back), back: back})
    session = run(
        law, lambda text, number: told[number] if text.count(back) > 1 else "\n", tau=20.0, infill_places=2
    )
    assert outcomes(session)[:3] == [[], ["empty"], ["defines", "also"]]
    card = find_tally(session.sink.header, session.sink.steps[2], words)
    assert all(row.is_consistent for row in card.rows) and "but another is inserted" in card.rows[1].word


def test_the_decisions_of_scores() -> None:
    assert (
        lowest_scored_lines([3.0, None, 1.0, 2.0, 1.0], 3) == [2, 3, 4] and lowest_scored_lines([], 5) == []
    )
    assert line_gains([1.0, None, 1.0, 1.0], [2.0, None, 1.1, 9.0], 0.3) == ([1.0], 1)
    assert line_gains([1.0, 1.0, None], [2.0, 1.5, None], 0.5) == ([1.0, 0.5], 3)
    assert [required_gain_count([2.0] * n) for n in range(6)] == [1, 1, 2, 2, 2, 3] and required_gain_count(
        [None, 2.0, None]
    ) == 1


def test_programs_are_read_and_not_run() -> None:
    assert parse_program("def f(x):\n    for y in x:\n") and parse_program("    x = 1\n    y = x\n")
    assert (
        not parse_program("x = [1,\n")
        and not parse_program("def f(x):\n  a\n    b\n")
        and not parse_program("x = 1\n  \x00")
    )
    tree = parse_program(
        "import os as o\ndef f(a, *b):\n    with o as p: return [a for q in p if q] + c + len(b)\n"
    )
    assert tree is not None and unbound_names(tree) == {"c"}
    assert imported_names("  from a.b import c as d, e\n") == {"d", "e"} and imported_names("import a.b") == {
        "a"
    }
    assert imported_names("x = 1") is None and imported_names("important = 1") is None
    assert find_comment_lines(['"""\n', "a\n", '"""\n', "# b\n", "c\n", '"""d"""\n']) == [
        True,
        True,
        True,
        True,
        False,
        True,
    ]
    assert parse_program("raise SystemExit") and parse_program("import nothing_like_this")


@torch.inference_mode()
def test_gaps_are_filled_as_each_would_be_alone() -> None:
    decoder = toys.bidirectional_target().decoder
    gaps = [Gap(toys.PROMPT[:4], [5, 2]), Gap([9], toys.PROMPT), Gap(toys.PROMPT, [1])]
    lane = Lane("infill", decoder, KeepAll())
    fill = Infiller(lane, [0, 4])
    for passes in (1, 2, 3, 9):
        both = fill.fill(gaps, 4, passes)
        assert both == [fill.fill([gap], 4, passes)[0] for gap in gaps]
        assert not {0, 4, decoder.spec.mask_token} & {x for ids in both for x in ids}
        assert lane.tokens == [] and lane.cache.layers[0].m == 0
    gap, text = gaps[0], [decoder.spec.mask_token] * 4
    for _ in range(4):  # one place per pass, by hand
        logits = decoder.forward(Feed.causal_chain([*gap.before, *text, *gap.behind], 0), None)[0, 4:8]
        logits[:, [0, 4, decoder.spec.mask_token]] = -torch.inf
        sure, best = logits.log_softmax(-1).max(-1)
        i = max((i for i in range(4) if text[i] == decoder.spec.mask_token), key=lambda i: sure[i])
        text[i] = int(best[i])
    assert fill.fill(gaps, 4, 4)[0] == text and len({*map(tuple, fill.fill(gaps, 4, 4))}) > 1


def test_the_second_model_has_no_causal_mask_and_knows_a_mask_token() -> None:
    made = toys.method(strategy="jump_coder")
    big, _ = toys.pair()
    blind = copy.copy(toys.bidirectional_target())
    blind.spec = toys.toy_spec(causal=False, heads=())
    for models, why in (
        ({}, r"needs a model in the role 'infill': give --role infill=NAME .* the shipped lab-mdm"),
        (
            {"infill": big},
            r"^toy reads its text from left to right only, so it cannot be the infill model: .* without a causal",
        ),
        ({"infill": blind}, r"knows none: choose a model whose config\.json gives mask_token_id"),
    ):
        with pytest.raises(MethodError, match=why):
            Session(big, made, toys.PROMPT, models=models)
