"""Sixty texts that would be more than text if anything allowed it.

They are used as tokens, prompt, name, model, file and refusal, on every page of the app and in what it writes. None is
executed, none is drawn as an element, and characters that hide or turn text are made visible.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Lab, served, settled
from sizes import first_of
from toylab import HOSTILE, finished, speculative, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.server import build_app

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
TRAP = "window.trap=1"
PAYLOADS = [
    *HOSTILE,
    f"<ScRiPt>{TRAP}</sCrIpT>",
    f"<script src=data:text/javascript,{TRAP}></script>",
    f"<script type=module>{TRAP}</script>",
    f"<<script>{TRAP}//<</script>",
    f"<script\x0d>{TRAP}</script>",
    f"<img src=x onerror={TRAP}//",
    f"<img/src=x/onerror={TRAP}>",
    f"<image src=x onerror={TRAP}>",
    f"<body onload={TRAP}>",
    f"<input autofocus onfocus={TRAP}>",
    f"<details open ontoggle={TRAP}>",
    f"<video><source onerror={TRAP}></video>",
    f"<audio src=x onerror={TRAP}>",
    f"<marquee onstart={TRAP}>",
    f"<div onmouseover={TRAP} style=position:fixed;inset:0>",
    f"<a href=javascript:{TRAP}>x</a>",
    f"<a href='&#106;avascript:{TRAP}'>x</a>",
    f"[x](javascript:{TRAP})",
    f"![x](x onerror={TRAP})",
    f"<iframe src=javascript:{TRAP}></iframe>",
    f"<iframe srcdoc='<script>parent.{TRAP}</script>'></iframe>",
    f"<object data=javascript:{TRAP}></object>",
    f"<embed src=javascript:{TRAP}>",
    f"<form action=javascript:{TRAP}><button>x</form>",
    f"<svg><script>{TRAP}</script></svg>",
    f"<svg><animate onbegin={TRAP} attributeName=x dur=1s>",
    f"<svg><a xlink:href=javascript:{TRAP}><text>x</text></a></svg>",
    f"<math><mtext><img src=x onerror={TRAP}></mtext></math>",
    f"<math href=javascript:{TRAP}>x</math>",
    "$\\href{javascript:" + TRAP + "}{x}$",
    f"<style>@import 'javascript:{TRAP}';*{{display:none}}</style>",
    f"<link rel=stylesheet href=data:text/css,*{{color:red}} onload={TRAP}>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "<base href=http://evil.example/>",
    f"<template><script>{TRAP}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={TRAP}>'>",
    f"<textarea></textarea><img src=x onerror={TRAP}>",
    f"--><img src=x onerror={TRAP}><!--",
    f"]]><img src=x onerror={TRAP}>",
    f"'-({TRAP})-'",
    f"${{constructor.constructor('{TRAP}')()}}",
    f"{{{{constructor.constructor('{TRAP}')()}}}}",
    f"<%= {TRAP} %>",
    f"#{{{TRAP}}}",
    f"{{% raw %}}{{{{{TRAP}}}}}",
    "\u2066abc\u2069\u200f\u200b",
    "\u2028\u2029\ufeff",
]
THEIRS = (
    "marquee, video, audio, embed, object, image, math, iframe, base, meta, [onerror], [onfocus], [ontoggle]"
)
NAME = """([run, value]) => fetch(`/ds/library/${run}/name`, {method: 'POST', body: JSON.stringify({value})})
  .then((answer) => answer.status)"""
WORDS = [" ".join(PAYLOADS[i::13]) for i in range(13)]  # the toy's vocabulary
NAMES = [" ".join(PAYLOADS[i : i + 5]) for i in (13, 31)]  # the names of its models
DROP = """(name) => {
  const data = new DataTransfer();
  data.items.add(new File(["no trace"], name));
  document.querySelector('#ds-page-library .told').textContent = '';
  for (const kind of ["dragenter", "dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def hostile(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    play = toy_play(tmp_path_factory.mktemp("markup"), WORDS)
    for k, model in enumerate(
        play.models.loaded_models().values()
    ):  # the name of the model's folder, and the name in its config
        model.name, model.spec = NAMES[k], replace(model.spec, name=NAMES[k])
    with served(lambda port: Guard(build_app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made
        play.close()
    assert not made.troubles, made.troubles
    away = [url for url in made.requests if not url.startswith(address)]
    assert not [url for url in away if "evil" in url or url.startswith("data:text/javascript")]


def harmless(page: Any) -> None:
    """No text has been executed, and no element from a text exists anywhere."""
    settled(page)  # all handlers have finished
    assert page.evaluate("window.trap") is None
    assert page.url.startswith("http://127.0.0.1")
    assert page.locator(f"#ds-view :is({THEIRS}), .ds-page :is({THEIRS})").count() == 0
    assert page.locator("a[href^='javascript' i]").count() == 0


def test_there_are_sixty() -> None:
    assert len(set(PAYLOADS)) >= 60 and len(set(WORDS)) == 13


def test_as_tokens_prompt_and_name_they_stay_text_on_every_page(hostile: Lab) -> None:
    prompt = "".join(x for x in PAYLOADS if x.isprintable())[:400]
    runs = []
    for seed in (0, 1):
        channel = hostile.play.start(speculative(prompt, 40, seed=seed))
        assert hostile.play._jobs[channel.run].wait(300)
        runs.append(channel.run)
    page = hostile.open(f"/#run={runs[0]}")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    harmless(page)
    for run, name in zip(runs, (PAYLOADS[1], PAYLOADS[18] + PAYLOADS[23]), strict=True):
        assert page.evaluate(NAME, [run, name]) == 200
    for tab in page.locator("[role=tab]").all():
        name = str(tab.get_attribute("id")).removeprefix("ds-tab-")
        parts = {"lab": f"run={runs[0]}&with={runs[1]}", "compare": f"compare&runs={runs[0]},{runs[1]}"}
        page.goto(hostile.address + "/#" + parts.get(name, f"{name}&run={runs[0]}"))
        page.wait_for_function(f"document.documentElement.dataset.dsTab == '{name}'")
        if name != "lab":
            page.wait_for_function(f"document.querySelector('#ds-page-{name}')?.textContent.length > 200")
        harmless(page)


@pytest.mark.nightly
def test_as_a_prompt_on_the_page_they_are_read_as_they_are(hostile: Lab) -> None:
    page = hostile.open()
    page.locator("#ds-prompt textarea").fill("".join(x for x in PAYLOADS if x.isprintable())[:400])
    page.click("#ds-run")
    page.wait_for_selector(".ds .outcome", timeout=60_000)
    harmless(page)


@pytest.mark.nightly
def test_as_names_of_files_they_are_refused_as_text(hostile: Lab) -> None:
    page = hostile.open("/#library", ready=False)
    page.wait_for_selector("#ds-page-library .card")
    for text in PAYLOADS:
        page.evaluate(DROP, text)
        page.wait_for_function(
            "document.querySelector('#ds-page-library .told').textContent.includes('was not taken')"
        )
    harmless(page)


@pytest.mark.nightly
def test_in_a_refusal_they_are_said_as_text(hostile: Lab) -> None:
    page = hostile.open(f"/#debugger&run={finished(hostile.play, max_new=12).run}", ready=False)
    box = page.locator("#ds-page-debugger .breaks form input")
    box.wait_for()
    said = "document.querySelector('#ds-page-debugger .breaks .ds-refusal')?.textContent"
    for text in (x for x in PAYLOADS if x.isprintable()):
        for words, due in (("", f"!{said}"), (text + " first reject", f"({said} || '').length > 10")):
            box.fill(words)
            box.press("Enter")  # the input is checked at once
            page.wait_for_function(due)
    harmless(page)


@pytest.mark.parametrize("what", first_of("run/{}/export.html", "report.html?runs={}"))
@pytest.mark.nightly
def test_in_a_file_that_is_taken_along_they_stay_text(hostile: Lab, what: str, tmp_path: Path) -> None:
    run = finished(hostile.play, max_new=150).run
    path = tmp_path / "taken.html"
    with urllib.request.urlopen(f"{hostile.address}/ds/{what.format(run)}") as answer:
        path.write_bytes(answer.read())
    page = hostile.driver.new_context(offline=True).new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("h1")
    for x in page.locator("details:not([open]) > summary").all():
        x.click()
    settled(page)
    assert page.evaluate("window.trap") is None and page.url == path.as_uri()
    assert page.locator(f":is({THEIRS.replace('base, meta, ', '')}), a[href^='javascript' i]").count() == 0
    assert all(url == path.as_uri() or url.startswith(("blob:", "data:image/")) for url in asked), asked
    assert sum(x[:20] in page.locator("html").inner_text() for x in PAYLOADS if x.startswith("<")) > 5, (
        "they are there"
    )
