"""Joint tokens: which texts of several tokens a pass offers, the distribution of the text, and that each token is fed once."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from drafting import feature_of

from decodescope.engine import MethodError
from decodescope.engine.methods.strategies.joint_tokens import build_joint_levels
from decodescope.engine.session.replay.exact_distribution import exact_distribution
from decodescope.engine.trace import check
from decodescope.lab.decision.explain import explain

V = 5
SMALL = toys.model(toys.decoder(toys.toy_spec(vocab=V, heads=("medusa",)), 6, torch.float64, sharp=1.5))
PROMPT = [1, 3, 2, 0]
CORPUS = [1, 2, 3, 4, 1, 2, 0, 4, 3, 2, 4, 1, 1, 2, 3, 0, 4, 4, 1, 3, 2, 3, 0, 2, 1, 4, 2, 2, 0, 1, 3]
WARM = ("temperature", {"temperature": 0.9})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "ids.txt"
    file.write_text(" ".join(map(str, CORPUS)))
    return file


def decoded(corpus: Path, sampler: Any = "greedy", count: int = 30, **knobs: Any):
    made = toys.method(strategy=("joint_tokens", {"datastore": str(corpus), **knobs}), sampler=sampler)
    session = toys.decode(made, PROMPT, count, pair=(SMALL, SMALL))
    report = check(session.sink)
    assert report.ok and report.counts["joint choices"] == len(session.sink.steps), str(report)
    return session


def lift(context: tuple[int, ...]) -> np.ndarray | None:
    """P(b | context) / P(b) by looking at every place of the corpus."""
    n = len(context)
    behind = [CORPUS[i + n] for i in range(len(CORPUS) - n) if tuple(CORPUS[i : i + n]) == context]
    alone = np.bincount(CORPUS, minlength=V) / len(CORPUS)
    return np.bincount(behind, minlength=V) / len(behind) / alone if behind else None


def by_hand(laws: np.ndarray, weight: float) -> list[dict[tuple[int, ...], float]]:
    """For each length the joint probability of every text, without pruning."""
    levels = [{(a,): float(laws[0, a]) for a in range(V)}]
    for row in laws[1:]:
        grown = {}
        for text, p in levels[-1].items():
            factor = lift(text)
            q = row if factor is None else row * factor**weight
            q = q / q.sum() if q.sum() > 0 else row
            grown |= {(*text, b): p * float(q[b]) for b in range(V)}
        levels.append(grown)
    return levels


@torch.inference_mode()
def laws_after(text: list[int], temperature: float = 1.0, tokens: int = 3) -> np.ndarray:
    """float64 [tokens, V]: the distributions of the target and its heads, computed without a cache."""
    decoder = SMALL.decoder
    feature = feature_of(text, decoder=decoder)[-1:]
    logits = torch.cat([decoder.unembed(feature), decoder.unembed(decoder.heads["medusa"](feature)[:, 0])])
    return (logits[:tokens] / temperature).softmax(-1).numpy()


@pytest.mark.parametrize(("tokens", "weight", "threshold", "share"), [
    (3, 1.0, 0.02, 0.3), (3, 0.5, 0.25, 0.0), (2, 1.0, 0.2, 1.0), (3, 0.0, 0.2, 0.3), (4, 2.0, 0.3, 0.1),
])  # fmt: skip
def test_texts_and_joint_probabilities_are_those_of_all_texts(
    corpus: Path, tokens: int, weight: float, threshold: float, share: float
) -> None:
    session = decoded(
        corpus,
        max_tokens_per_pass=tokens,
        cooccurrence_exponent=weight,
        threshold=threshold,
        relative_threshold=share,
    )
    text, levels = list(PROMPT), set()
    for step in session.sink.steps:
        room = min(tokens, len(PROMPT) + 30 - len(text))
        every = by_hand(laws_after(text, tokens=room), weight)
        begun = [
            every[0],
            *({t: p for t, p in b.items() if a[t[:-1]] >= threshold} for a, b in pairwise(every)),
        ]
        best = [max(level.values(), default=None) for level in begun]
        best = best[: best.index(None)] if None in best else best
        level = next((n for n, x in enumerate(best[1:], 1) if x < threshold), len(best))
        lengths = step.detail("joint_lengths")
        assert lengths.values["written"] == level
        assert lengths.columns["joint"] == pytest.approx(best[: min(level + 1, len(best))], abs=1e-9)
        if level > 1:
            rows = step.detail("joint_texts").columns
            due = {t: p for t, p in every[level - 1].items() if p >= max(threshold, share * best[level - 1])}
            assert dict(zip(map(tuple, rows["text"]), rows["joint"], strict=True)) == pytest.approx(
                due, abs=1e-9
            )
            laws = laws_after(text, tokens=level)
            for one, alone in zip(rows["text"], rows["alone"], strict=True):
                assert alone == pytest.approx(
                    np.prod([laws_of[t] for laws_of, t in zip(laws, one, strict=True)]), abs=1e-9
                )
            assert step.emitted == list(max(due, key=due.__getitem__))
        else:
            assert step.emitted == [int(laws_after(text)[0].argmax())]
        text += step.emitted
        levels.add(level)
    assert len(levels) > 1 or (levels == {3} and threshold < 0.05), "the test needs steps of several lengths"


def test_a_threshold_above_one_is_the_models_own_law(corpus: Path) -> None:
    joint = exact_distribution(
        SMALL, toys.method(strategy=("joint_tokens", dict(threshold=1.01)), sampler=WARM), PROMPT, 3
    )
    plain = exact_distribution(SMALL, toys.method(sampler=WARM), PROMPT, 3)
    assert joint.keys() == plain.keys() and len(plain) == V**3
    assert joint == pytest.approx(plain, abs=1e-12)
    lower = toys.method(strategy=("joint_tokens", dict(threshold=0.2, datastore=str(corpus))), sampler=WARM)
    other = exact_distribution(SMALL, lower, PROMPT, 3)
    assert sum(abs(other.get(x, 0.0) - p) for x, p in plain.items()) > 0.2, "below it the law is another"


def test_what_is_drawn_has_the_joint_law_of_the_texts_that_are_offered(corpus: Path) -> None:
    knobs = dict(max_tokens_per_pass=2, threshold=0.05, relative_threshold=0.0, datastore=str(corpus))
    found = exact_distribution(SMALL, toys.method(strategy=("joint_tokens", knobs), sampler=WARM), PROMPT, 2)
    pairs = {t: p for t, p in by_hand(laws_after(PROMPT, 0.9, 2), 1.0)[1].items() if p >= 0.05}
    assert len(pairs) > 3 and found == pytest.approx(
        {t: p / sum(pairs.values()) for t, p in pairs.items()}, abs=1e-9
    )


def test_with_the_true_co_occurrence_the_joint_is_exact() -> None:
    """With p2 the second token's true marginal and c the true P(b | a) / P(b), J is the model's joint; so too for three."""
    first = laws_after(PROMPT)[0]
    second = np.stack([laws_after([*PROMPT, a])[0] for a in range(V)])  # [a, b]
    third = np.stack([[laws_after([*PROMPT, a, b])[0] for b in range(V)] for a in range(V)])  # [a, b, c]
    apart = np.stack([first, first @ second, np.einsum("a,ab,abc->c", first, second, third)])

    def ratio(text: list[int]) -> np.ndarray:
        return second[text[0]] / apart[1] if len(text) == 1 else third[text[0], text[1]] / apart[2]

    for n in (2, 3):
        levels, best = build_joint_levels(apart[:n], ratio, 1.0, 0.01)
        due = {
            t: first[t[0]] * second[t[0], t[1]] * (third[t] if n == 3 else 1.0)
            for t in product(range(V), repeat=n)
        }
        due = {t: p for t, p in due.items() if p >= 0.01}
        assert len(levels) == len(best) == n and len(due) > 5
        assert dict(
            zip(map(tuple, levels[-1].tokens.tolist()), levels[-1].joint, strict=True)
        ) == pytest.approx(due, abs=1e-12)


@pytest.mark.parametrize("sampler", ["greedy", WARM])
def test_each_token_is_fed_once_by_the_pass_behind_the_one_that_wrote_it(corpus: Path, sampler: Any) -> None:
    session = decoded(corpus, sampler, threshold=0.15)
    steps = session.sink.steps
    fed = [[(one.lane, one.tokens) for one in step.passes] for step in steps]
    assert fed == [[("target", rows)] for rows in (1, *(len(step.emitted) for step in steps[:-1]))]
    assert len(steps) < 30 and session.target.tokens == session.tokens[: -len(steps[-1].emitted)]
    assert toys.matches_fresh_reading(session.target)
    texts = filter(None, (step.detail("joint_texts") for step in steps))
    assert [one.values["u"] is None for one in texts].count(sampler == "greedy") > 3


def test_a_text_ends_in_the_midst_of_what_a_pass_wrote(corpus: Path) -> None:
    whole = decoded(corpus, threshold=0.1)
    wide = next(step for step in whole.sink.steps if len(step.emitted) == 3)
    stop = next((x for x in wide.emitted[:2] if x not in whole.tokens[len(PROMPT) : wide.n]), None)
    assert stop is not None, "the test needs a token that comes first within a step"
    made = toys.method(strategy=("joint_tokens", dict(threshold=0.1, datastore=str(corpus))))
    ended = toys.decode(made, PROMPT, 30, pair=(SMALL, SMALL), stop_tokens=[stop])
    assert ended.end.reason == "stop_token" and check(ended.sink).ok
    assert ended.end.tokens == whole.end.tokens[: whole.end.tokens.index(stop) + 1]


def test_a_record_that_does_not_follow_is_told(corpus: Path) -> None:
    session = decoded(corpus, WARM, threshold=0.05, relative_threshold=0.0, max_tokens_per_pass=2)
    place = next(i for i, x in enumerate(session.sink.steps) if (y := x.detail("joint_texts")) and len(y) > 2)
    lengths, texts = session.sink.steps[place].details
    own, rows = texts.values["chosen"], texts.columns
    words = [
        "drawn" if k == own % len(texts) else "offered" for k in range(len(texts))
    ]  # marks the next text as drawn
    swapped = {name: [column[1], column[0], *column[2:]] for name, column in rows.items()}
    longer = [rows["text"][0] + [0], *rows["text"][1:]]
    lies = {
        "breaks": [
            (texts, {}, {"u": (texts.values["u"] + 0.5) % 1}),
            (texts, {}, {"u": None}),
            (texts, {"outcome": words}, {}),
            (texts, {"outcome": words}, {"chosen": own % len(texts) + 1}),
            (texts, {"joint": swapped["joint"]}, {}),
            (texts, {"sum": [*rows["sum"][:-1], 2.0]}, {}),
            (texts, {"sum": [None] * len(texts)}, {}),
            (texts, {"joint": [2.0, *rows["joint"][1:]]}, {}),
            (texts, {"alone": [-1.0, *rows["alone"][1:]]}, {}),
            (texts, {}, {"best": 2.0}),
            (lengths, {}, {"written": 1}),
            (lengths, {}, {"written": 3}),
        ],
        "it wrote text": [(texts, {}, {"chosen": 99}), (texts, {}, {"chosen": 1.0})],
        "outside the vocabulary": [
            (texts, {"text": [*rows["text"][: own - 1], [0, 7], *rows["text"][own:]]}, {})
        ],
        "and the text that it chose is": [(texts, {"text": [*rows["text"][1:], rows["text"][0]]}, {})],
        "is 'written', with 0.01 against": [(lengths, {"joint": [rows["joint"][0], 0.01]}, {})],
        "come in an order that cannot be": [
            (texts, {"outcome": ["offered"] * len(texts)}, {}),
            (lengths, {"outcome": ["written", "own"]}, {}),
        ],
        "texts are not": [
            (texts, {"text": longer}, {}),
            (texts, {"text": [None] * len(texts)}, {}),
            (lengths, {}, {"texts": 1}),
        ],
        "not what is recorded of that length": [(lengths, {"joint": [1.0, 0.9]}, {})],
        "must hold entries of the type number": [(lengths, {}, {"written": "two"})],
        "which its declaration lacks": [(lengths, {"other": [0.0, 0.0]}, {})],
    }
    for said, changes in lies.items():
        for one, columns, values in changes:
            wrong = copy.deepcopy(session.sink)
            told = replace(one, columns=one.columns | columns, values=one.values | values)
            wrong.steps[place].details = [told if x is one else x for x in (lengths, texts)]
            assert any(said in x for x in check(wrong).problems), (said, columns, values, str(check(wrong)))
    for left, said in (([texts], "nothing of their length"), ([lengths], "no text of several was chosen")):
        wrong = copy.deepcopy(session.sink)
        wrong.steps[place].details = left
        assert any(said in x for x in check(wrong).problems), said
    wrong = copy.deepcopy(session.sink)
    wrong.header.method["strategy"]["relative_threshold"] = 1.0
    assert any("against" in x for x in check(wrong).problems), "other texts reach another share"
    wrong.header.method["strategy"]["threshold"] = None
    assert any("lacks the numbers that decide it" in x for x in check(wrong).problems)
    assert check(session.sink).ok


@pytest.mark.parametrize("sampler", ["greedy", WARM])
def test_a_step_is_told_at_length(corpus: Path, sampler: Any) -> None:
    session = decoded(corpus, sampler, threshold=0.2, max_tokens_per_pass=2)
    seen = set()
    for step in session.sink.steps:
        explained = explain(session.sink, step.step, what="step")
        texts, said = step.detail("joint_texts"), str(explained)
        assert (
            explained.agrees
            and explained.title == "Tokens taken together"
            and explained.rule == "joint probability"
        )
        lengths = step.detail("joint_lengths").columns["joint"]
        for many, best in zip(("1 token", "2 tokens"), lengths, strict=False):
            assert f"{many}: the best text has {best:.3f}" in said
        if texts is None:
            assert (
                explained.where == "one token"
                and "No text of several tokens has 0.2, so the target's" in said
            )
        else:
            assert explained.where == f"2 tokens, one of {len(texts)} texts"
            assert f"{texts.columns['joint'][0]:.3f}, apart {texts.columns['alone'][0]:.3f}" in said
            drawn = (
                f"u = {texts.values['u']:.3f} fell on text {texts.values['chosen']}"
                if sampler == WARM
                else ""
            )
            assert drawn in said and ("the best was taken" in said) == (sampler == "greedy")
        seen.add(texts is None)
    assert seen == {True, False}, "the test needs both"


def test_a_sampler_that_remembers_and_a_model_without_heads_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"^joint_tokens draws tokens together, and repetition_penalty remembers"
    ):
        toys.decode(toys.method(strategy="joint_tokens", sampler="repetition_penalty"))
    bare = toys.model(toys.decoder(toys.toy_spec(heads=()), 0, torch.float64))
    with pytest.raises(MethodError, match=r"has no heads/medusa: .* choose the strategy draft_verify"):
        toys.decode(toys.method(strategy="joint_tokens"), pair=(bare, bare))
