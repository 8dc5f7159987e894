"""The generated stories and talks: sound English, consistent with their own state, and almost never the same twice."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from decodescope.training import plots
from decodescope.training.stories import Story, talk, tell
from decodescope.training.tale import render_phrase
from decodescope.training.troubles import TROUBLES
from decodescope.training.words import NUMBERS, VOWEL, count_noun, join_words, pluralize, with_article

COUNT = 3000
REPEATED = 0.015  # share of all rows of 20 words in this many stories
SENTENCE = re.compile(r"(?<=[.!?])\"?\s+")


@pytest.fixture(scope="module")
def told() -> list[Story]:
    return [tell(Random(seed)) for seed in range(COUNT)]


@pytest.fixture(scope="module")
def talks() -> list[str]:
    return [talk(Random(seed)) for seed in range(COUNT)]


def wrong_articles(text: str) -> list[str]:
    """Each "a" or "an" that does not fit the word after it."""
    return [
        m[0] for m in re.finditer(r"\b([Aa]n?) (\w+)", text) if (len(m[1]) == 2) != bool(VOWEL.match(m[2]))
    ]


def test_the_same_seed_tells_the_same_story_and_another_seed_another(told):
    assert all(tell(Random(seed)) == told[seed] for seed in range(0, COUNT, 100))
    assert len({story.text for story in told}) == COUNT


def test_stories_are_clean_english(told):
    for story in told:
        everything = "\n".join([story.title, story.text, *(f"{f.question} {f.answer}" for f in story.facts)])
        assert not re.search(r"[][{}|^~]", everything), everything
        assert not wrong_articles(everything), everything
        assert not re.search(r"  | [.,!?]|,,|,\.|\.\.|\b(\w+) \1\b", story.text), story.text
        assert all(re.match(r"\"?[A-Z]", s) for p in story.text.split("\n\n") for s in p.split(". ")), (
            story.text
        )


def test_wrong_articles_are_found():
    assert wrong_articles("A apple, an pear, an unicorn and a hour.") == [
        "A apple",
        "an pear",
        "an unicorn",
        "a hour",
    ]
    assert not wrong_articles("An apple, a pear, a unicorn, a useful hint, an honest man, a one-eyed cat.")


def test_stories_have_the_length_of_a_page(told):
    lengths = [len(story.text.split()) for story in told]
    assert min(lengths) >= 120
    assert max(lengths) <= 500
    assert 220 < sum(lengths) / COUNT < 330


def test_every_answer_stands_in_the_text_and_every_question_is_one(told):
    for story in told:
        assert len(story.facts) >= 3
        assert len({fact.question for fact in story.facts}) == len(story.facts)
        for fact in story.facts:
            assert fact.answer and fact.answer in story.text, (fact, story.text)
            assert re.fullmatch(r"[A-Z].*\?", fact.question)


def test_no_fact_is_lost_between_plot_and_story(monkeypatch):
    tales = []
    monkeypatch.setattr(
        "decodescope.training.stories.begin",
        lambda t, begin=tell.__globals__["begin"]: (tales.append(t), begin(t)),
    )
    for seed in range(400):
        story = tell(Random(seed))
        assert {q for q, _ in tales[-1].asked} == {f.question for f in story.facts}, story.text


def test_the_gist_is_one_sentence_of_the_text(told):
    for story in told:
        assert story.text.count(story.gist) == 1
        assert story.gist in SENTENCE.split(story.text.replace("\n\n", " ").strip()), (story.gist, story.text)


def test_stories_hardly_repeat_each_other(told):
    seen: set[tuple[str, ...]] = set()
    seen_windows: set[tuple[str, ...]] = set()
    shingles = windows = again = 0
    for story in told:
        words, sentences = story.text.split(), SENTENCE.split(story.text)
        new = {tuple(words[i : i + 20]) for i in range(len(words) - 19)}
        shingles, again = shingles + len(new), again + len(new & seen)
        seen |= new
        new = {tuple(sentences[i : i + 8]) for i in range(len(sentences) - 7)}
        windows += len(new)
        assert not new & seen_windows, "eight sentences in a row came twice"
        seen_windows |= new
    assert windows > 30_000 and shingles > 500_000
    assert again / shingles < REPEATED, f"{again / shingles:.2%} of the rows of 20 words came before"


USES = {  # what a trouble says of a thing from the bag -> how the story named it at first
    "blew the whistle three times": "whistle",
    "there was the umbrella!": "an umbrella",
    "took the lamp out": "lamp",
    "pulled the lamp out": "lamp",
    "The blanket from the bag": "blanket",
    "there was a rope in the bag": "rope",
    "the old map and": "map",
    "took the flute": "flute",
}


def test_nothing_is_used_that_was_not_packed_or_given(told):
    used = Counter()
    for story in told:
        for use, thing in USES.items():
            at = story.text.find(use)
            if at >= 0:
                used[use] += 1
                assert thing in story.text[:at], (use, story.text)
    assert len(used) == len(USES) and sum(used.values()) > 200, used


def test_every_plot_and_every_trouble_comes(monkeypatch):
    came = Counter()

    def spied(tell_it):
        def spy(t):
            came[tell_it.__name__] += 1
            tell_it(t)

        spy.__name__ = tell_it.__name__
        return spy

    monkeypatch.setattr("decodescope.training.stories.PLOTS", [spied(p) for p in plots.PLOTS])
    monkeypatch.setattr(
        "decodescope.training.troubles.TROUBLES",
        [(fits, helps, spied(tell_it)) for fits, helps, tell_it in TROUBLES],
    )
    for seed in range(600):
        tell(Random(seed))
    assert len(came) == len(plots.PLOTS) + len(TROUBLES) and min(came.values()) >= 5, came


def test_talks_are_clean_and_differ(talks):
    assert len(set(talks)) > 0.99 * COUNT
    for text in talks:
        assert not re.search(r"[][{}|^~]|  | [.,!?]|\b(\w+) \1\b", text), text
        assert not wrong_articles(text), text


def test_the_sums_of_a_sale_are_right(talks):
    checked = 0
    for text in talks:
        if "That makes" not in text:
            continue
        each, total = re.search(r"(\d+) coins\W", text)[1], re.search(r"That makes (\d+) coins", text)[1]
        off, less = re.search(r"take off (\d+)\. \D* (\d+) coins", text).groups()
        paid, back = (
            re.search(r"(?:Here are|Here you have) (\d+)", text)[1],
            re.search(r"(\d+) coins back", text)[1],
        )
        count = next(
            NUMBERS.index(m)
            for m in re.findall(r"(?:would like|will take|need) (\w+) ", text)
            if m in NUMBERS
        )
        assert int(total) == count * int(each)
        assert int(less) == int(total) - int(off) and int(back) == int(paid) - int(less)
        checked += 1
    assert checked > 100, "the test needs sales"


def test_a_guessing_game_tells_no_lies(talks):
    checked = 0
    for text in talks:
        hints = re.findall(r"(more|less) than (\d+)", text)
        secret = re.search(r"(?:! It is|It was) (\d+)\.", text)
        if "I am thinking of a number" not in text or not hints:
            continue
        for word, number in hints:
            assert (int(secret[1]) > int(number)) == (word == "more"), text
        checked += 1
    assert checked > 100, "the test needs games"


def test_a_phrase_draws_its_ways_and_must_close_its_brackets():
    drawn = {
        render_phrase("^[a~ {what}|two [big|small] ones].", Random(seed), {"what": "owl"})
        for seed in range(60)
    }
    assert drawn == {"An owl.", "Two big ones.", "Two small ones."}
    with pytest.raises(ValueError, match="do not close"):
        render_phrase("a [small|big owl", Random(0), {})


def test_the_grammar_helpers():
    assert [with_article(w) for w in ("owl", "hour", "unicorn", "umbrella", "bee")] == [
        "an owl",
        "an hour",
        "a unicorn",
        "an umbrella",
        "a bee",
    ]
    assert [pluralize(w) for w in ("box", "city", "mouse", "boy", "brush", "key")] == [
        "boxes",
        "cities",
        "mice",
        "boys",
        "brushes",
        "keys",
    ]
    assert (count_noun(1, "box"), count_noun(7, "box"), count_noun(15, "fox")) == (
        "one box",
        "seven boxes",
        "15 foxes",
    )
    assert (join_words(["a"]), join_words(["a", "b"]), join_words(["a", "b", "c"])) == (
        "a",
        "a and b",
        "a, b and c",
    )
