"""Below a path prefix: the whole page works behind a reverse proxy, also for who signs in there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import Lab, served
from proxying import proxied
from toylab import toy_play

from decodescope.app.http.access import AccessSettings
from decodescope.app.http.guard import Guard
from decodescope.app.http.users import UserFile, add_user
from decodescope.app.server import build_app

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
PREFIX = "/user/a/proxy/7860"
TOKEN = "a-token-of-this-server"


@contextmanager
def below_prefix(driver: Any, folder: Path, settings: AccessSettings, **proxy: bool) -> Iterator[Lab]:
    """A lab behind a proxy; its address is that of the proxy."""
    play = toy_play(folder)
    app = build_app(play)
    with (
        served(lambda port: Guard(app, port, settings)) as address,
        proxied(address, PREFIX, **proxy) as there,
    ):
        lab = Lab(driver, there, play)
        yield lab
        play.close()
    assert not lab.troubles, lab.troubles


def use_page(lab: Lab, path: str) -> None:
    """Open the page, run, look at a tab, save a file; every request goes below the prefix and is answered."""
    page = lab.open(path, ready=False)
    lost: list[str] = []
    page.on("response", lambda answer: answer.status >= 400 and lost.append(answer.url))
    lab.ready(page)
    assert page.url.split("#")[0] == f"{lab.address}/", "the token has left the address"
    page.click("#ds-run")
    page.wait_for_function("document.documentElement.dataset.dsRun === 'done'")
    page.evaluate("location.hash = '#library'")
    page.wait_for_selector("#ds-page-library a[download]", state="attached")
    links = page.eval_on_selector_all("a[download]", "all => all.map((x) => x.href)")
    with page.expect_download() as saved:
        page.evaluate("document.querySelector('#ds-page-library a[download]').click()")
    assert saved.value.url.startswith(f"{lab.address}/ds/")
    assert links and all(x.startswith(f"{lab.address}/ds/") for x in links)
    inside = [x for x in lab.requests if not x.startswith(("data:", "blob:"))]
    assert any("/events" in x for x in inside) and any("/gradio_api/queue/join" in x for x in inside)
    assert [x for x in inside if not x.startswith(f"{lab.address}/")] == []
    assert lost == []


def test_the_page_works_below_a_prefix_for_who_brings_the_token(driver: Any, tmp_path: Path) -> None:
    settings = AccessSettings(root_path=PREFIX, token=TOKEN)
    with below_prefix(driver, tmp_path, settings) as lab:
        use_page(lab, f"/?token={TOKEN}")


@pytest.mark.nightly
@pytest.mark.parametrize("proxy", [{"keeps_host": False}, {"strips": False}], ids=str)
def test_the_page_works_behind_other_proxies(driver: Any, tmp_path: Path, proxy: dict[str, bool]) -> None:
    with below_prefix(driver, tmp_path, AccessSettings(root_path=PREFIX), **proxy) as lab:
        use_page(lab, "/")


def test_who_has_a_name_signs_in_and_out_without_scripts(driver: Any, tmp_path: Path) -> None:
    add_user(tmp_path / "users", "ann", "correct horse")

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        body = b'<a href="ds/sign-out">Sign out</a>'
        kind = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": body})

    settings = AccessSettings(root_path=PREFIX, users=UserFile(tmp_path / "users"))
    with served(lambda port: Guard(behind, port, settings)) as address, proxied(address, PREFIX) as there:
        for width in (1440, 390):
            context = driver.new_context(java_script_enabled=False, viewport={"width": width, "height": 800})
            page = context.new_page()
            page.goto(f"{there}/")
            fields = page.locator("input").evaluate_all(
                "all => all.map((x) => x.getBoundingClientRect().right)"
            )
            assert len(fields) == 2 and max(fields) <= width - 16
            for password, seen in (
                ("wrong", "Name or password is not right."),
                ("correct horse", "Sign out"),
            ):
                page.fill("input[name=name]", "ann")
                page.fill("input[name=password]", password)
                page.click("button")
                page.get_by_text(seen).wait_for()
            assert page.url == f"{there}/"
            page.click("a")
            page.get_by_text("You are signed in as ann.").wait_for()
            page.click("button")
            page.locator("input[name=password]").wait_for()
            assert page.url == f"{there}/"
            context.close()
