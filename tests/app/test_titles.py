"""A run has one title, made of its method and the first words of its prompt, wherever runs are shown together."""

from __future__ import annotations

from typing import Any

import pytest
from browser import Lab, option
from sizes import first_of
from starlette.testclient import TestClient
from toylab import finished, occupied, speculative

from decodescope.app.runs.run_service import RunService
from decodescope.engine.trace.query.titles import LETTERS, compose_title, title

METHOD = "draft model + temperature"


def test_a_title_holds_the_method_and_whole_first_words() -> None:
    assert compose_title("plain decoding", "Once  upon\na time") == "plain decoding: Once upon a time"
    assert compose_title("plain decoding", " \n") == "plain decoding"
    long = compose_title("x", "word " * 40)
    assert long.endswith("word…") and len(long) <= len("x: ") + LETTERS + 1
    assert compose_title("x", "y" * 400) == f"x: {'y' * LETTERS}…"
    assert compose_title("x", "<|user|>\nSay hello.<|end|>\n<|assistant|>") == "x: Say hello.<|end|>"


def test_a_run_has_one_title_before_it_begins_and_after(play: RunService, client: TestClient) -> None:
    with occupied(play):
        waits = play.start(speculative(prompt="hello there", max_new=3))
        rows = {row["run"]: row["named"] for row in client.get("/ds/going").json()["rows"]}
        assert rows[waits.run] == f"{METHOD}: hello there"
        assert client.get(f"/ds/run/{waits.run}").json()["named"] == f"{METHOD}: hello there"
    assert play._jobs[waits.run].wait(300)
    header = waits.wire.header
    assert waits.wire.head()["named"] == title(header) == waits.state()["named"]
    library = {row["run"]: row for row in client.get("/ds/library").json()["rows"]}
    assert library[waits.run]["named"] == title(header) and title(header).startswith(f"{METHOD}: ")


def test_a_fork_is_named_after_itself(play: RunService, client: TestClient) -> None:
    run = finished(play, max_new=8)
    body = {"step": 1, "name": "other seed", "change": {"seed": 5}}
    fork = client.post(f"/ds/run/{run.run}/fork", json=body).json()["run"]
    assert play._jobs[fork].wait(300)
    assert title(play.find(fork).wire.header).startswith("other seed: ")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_panes_that_wait_have_names(lab: Lab) -> None:
    with occupied(lab.play):
        runs = [
            lab.play.start(speculative(prompt=text, max_new=3)).run
            for text in ("first of two", "second of two")
        ]
        page = lab.open(f"/#compare&runs={','.join(runs)}", ready=False)
        for text in ("first of two", "second of two"):
            page.wait_for_selector(f"#ds-page-compare header.run b >> text={METHOD}: {text}")
    page.wait_for_function("document.querySelectorAll('#ds-page-compare .host h1').length == 2")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("scheme", first_of("light", "dark"))
@pytest.mark.nightly
def test_the_title_of_every_example_has_room_on_a_small_screen(lab: Lab, scheme: str) -> None:
    page = lab.open(width=390, color_scheme=scheme)
    page.wait_for_selector(".ds-shown select >> visible=true")
    widest, room = page.evaluate(
        "() => { const menu = document.querySelector('.ds-shown select'), style = getComputedStyle(menu);"
        " const pen = document.createElement('canvas').getContext('2d'); pen.font = style.font;"
        " const arrow = 16, beside = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight) + arrow;"
        " return [Math.max(...[...menu.options].map((x) => pen.measureText(x.text).width)), menu.clientWidth - beside]; }"
    )
    assert 200 < widest <= room, "the menu has a line of its own where its titles need it"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("width", first_of(390, 1280, 1440))
@pytest.mark.nightly
def test_the_longest_method_names_are_not_cut(lab: Lab, width: int) -> None:
    page = lab.open(width=width)

    def room(box: str) -> Any:
        return page.evaluate(
            "box => { const one = document.querySelector(box + ' input'), style = getComputedStyle(one),"
            " arrow = document.querySelector(box + ' .icon-wrap').getBoundingClientRect();"
            " const pen = document.createElement('canvas').getContext('2d'); pen.font = style.font;"
            " const begin = one.getBoundingClientRect().left + parseFloat(style.paddingLeft);"
            " return arrow.left - begin - pen.measureText(one.value).width; }",
            box,
        )

    option(page, "#ds-preset", "EAGLE-2, typical acceptance")
    page.wait_for_function("document.querySelector('#ds-preset input').value.startsWith('EAGLE-2, typ')")
    option(page, "#ds-other", "Draft model, until unsure")
    page.wait_for_function("document.querySelector('#ds-other input').value.startsWith('Draft model, u')")
    assert room("#ds-preset") >= 0 and room("#ds-other") >= 0
