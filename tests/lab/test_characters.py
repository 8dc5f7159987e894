"""Characters of several tokens in Text: Arabic, Hebrew, emoji and combining marks, in the shipped tokenizer's own tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.load import SHIPPED

from .drawn import Drawn, told
from .runs import run

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
ARABIC, HEBREW = "مرحبا بالعالم", "שָׁלוֹם עולם"
PERSIAN = "می\u200cروم"
FAMILY, THUMB, FLAG = "👨\u200d👩\u200d👧", "👍🏽", "🇫🇷"
TEXT = f"{ARABIC} {HEBREW} {FAMILY}{THUMB}{FLAG}é é €"
SEEN = """() => [...document.querySelectorAll(".tok[data-step]")].filter((x) => !x.hidden).map((x) => x.textContent).join("")"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(SHIPPED / "lab")


def pieces(tokenizer: Tokenizer, text: str) -> list[list[Any]]:
    return [[token, tokenizer.piece(token)] for token in tokenizer.encode_plain(text)]


def show(drawn: Drawn, prompt: list[list[Any]], written: list[list[Any]]) -> None:
    """A run that writes these tokens, one per step."""
    head, *steps, _ = told(run("plain greedy", count=len(written)))
    head |= {"prompt": prompt, "prompt_tokens": len(prompt)}
    for step, piece in zip(steps, written, strict=True):
        step["made"] = [[*piece, "target"]]
    begin = "(all) => { window.view = S.mount(place, { views: ['text'] }); all.forEach((one) => view.push(one)); }"
    drawn.run(begin, [head, *steps])


def test_each_character_is_drawn_once_and_says_its_tokens(drawn: Drawn, tokenizer: Tokenizer) -> None:
    written = pieces(tokenizer, TEXT)
    broken = [k for k, (_, piece) in enumerate(written) if isinstance(piece, list)]
    assert len(broken) > 60, "the test needs tokens that hold parts of characters"
    show(drawn, pieces(tokenizer, f"{HEBREW} {FAMILY}"), written)
    assert drawn.run(SEEN) == TEXT
    prompt = drawn.run(
        "() => [...document.querySelectorAll('.prompt')].filter((x) => !x.hidden).map((x) => x.textContent)"
    )
    assert "".join(prompt) == f"{HEBREW} {FAMILY}" and FAMILY in prompt
    for whole in (FAMILY, THUMB, FLAG, "م"):
        first = drawn.run(
            """(whole) => { const x = [...document.querySelectorAll(".tok[data-step]")].find((x) => x.textContent === whole);
              return [Number(x.dataset.step), x.title]; }""",
            whole,
        )
        count = len(pieces(tokenizer, whole)) if whole != "م" else 2
        assert (
            first[1].startswith(f"one character of {count} tokens: ⟨") and first[1].count("⟩: step ") == count
        )
        assert f"step {first[0]}, target's own" in first[1]
    assert drawn.page.locator(".tok[data-step]").count() == len(written), "every token has its element"


@pytest.mark.nightly
def test_half_a_character_is_told_as_bytes_until_its_other_half_has_come(
    drawn: Drawn, tokenizer: Tokenizer
) -> None:
    written = pieces(tokenizer, "م€")
    show(drawn, [], written)
    assert len(written) >= 4
    due, text = [], bytearray()
    for step, (token, _) in enumerate(written):
        text += tokenizer.bytes_of(token)
        whole = text.decode(errors="ignore")
        rest = bytes(text[len(whole.encode()) :])
        due.append(whole + "".join(f"⟨{byte:02X}⟩" for byte in rest))
        drawn.run("(i) => view.seek(i)", step)
        assert drawn.run(SEEN) == due[-1]
    for step in (1, 0, len(written) - 1, 2):
        drawn.run("(i) => view.seek(i)", step)
        assert drawn.run(SEEN) == due[step], "also backwards, and over several steps"
    drawn.run("() => view.seek(0)")
    drawn.run("() => view.follow(true)")
    drawn.page.locator(".tok[data-step]:not([hidden])", has_text="م").click()
    drawn.settled()
    assert drawn.run("() => view.at") == 1, "a click leads to the step that ended the character"


@pytest.mark.parametrize(
    ("tokens", "due"),
    [
        ([["ff"], ["d8"], ["b3"]], "⟨FF⟩س"),
        ([["d8"], " a", ["b3"]], "⟨D8⟩ a⟨B3⟩"),
        ([["e2", "82"], ["d8"], ["b3"]], "⟨E2 82⟩س"),
        (["a", "\u200d", "b"], "a‹U+200D›b"),
        (["👍", "\U000e0041"], "👍‹U+E0041›"),
        (["x\u202e", "y"], "x‹U+202E›y"),
        (["e", "\u0301"], "e\u0301"),
        ([FAMILY], FAMILY),
        ([PERSIAN], PERSIAN),
    ],
    ids=[
        "no text",
        "broken off",
        "one that begins anew",
        "joiner of letters",
        "tag",
        "mark",
        "accent",
        "emoji",
        "Persian",
    ],
)
def test_what_is_no_character_stays_apart_and_nothing_is_hidden(
    drawn: Drawn, tokens: list[Any], due: str
) -> None:
    show(drawn, [], [[k, piece] for k, piece in enumerate(tokens)])
    assert drawn.run(SEEN) == due


def test_lines_run_from_the_right_where_their_script_does(drawn: Drawn, tokenizer: Tokenizer) -> None:
    """Letters of a right-to-left text appear in its order, whichever tokens hold them."""
    show(drawn, [], pieces(tokenizer, f"{HEBREW}\nplain"))
    lefts = drawn.run(
        """() => [...document.querySelectorAll(".tok[data-step]")].filter((x) => !x.hidden && /^[א-ת]/.test(x.textContent))
          .map((x) => x.getBoundingClientRect().left)"""
    )
    assert len(lefts) >= 8 and lefts == sorted(lefts, reverse=True), json.dumps(lefts)
    box = drawn.page.locator(".text > div").bounding_box()
    assert lefts[0] > box["x"] + box["width"] / 2, "a line of Hebrew begins at the right"
