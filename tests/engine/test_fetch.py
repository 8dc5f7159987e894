"""models get: a model out of the package index, resumed, verified, and refused in one sentence. The server is ours."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pytest
from package_server import PackageServer, package_server, tiny_fetchable, wheel_with

from decodescope.engine.model.fetched import download, fetch, package_index
from decodescope.engine.model.fetched.catalogue import FETCHABLE, find_fetchable, is_fetched, model_path
from decodescope.engine.model.fetched.download import PIECE
from decodescope.engine.model.fetched.fetch import fetch_model, held_bytes, needed_bytes
from decodescope.engine.model.fetched.package_index import IndexSettings, read_settings
from decodescope.engine.model.fetched.refusals import FetchError, FetchStopped
from decodescope.engine.session.load import load

CONTENT = random.Random(7).randbytes(2_000_000)  # does not compress: the wheel is as long
MEMBER = "tiny_model/Tiny-Instruct.Q8_0.gguf"
WHEEL = wheel_with(MEMBER, CONTENT)
MODEL = tiny_fetchable(CONTENT, WHEEL)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again without a pause."""
    monkeypatch.setattr(
        download.FileDownload.__init__, "__defaults__", (download.ignore_report, lambda: False, 0.0)
    )


def get(server: PackageServer, folder: Path, **how: Any) -> Path:
    """Fetch the tiny model from the server into the folder."""
    return fetch_model(server.model, folder=folder, settings=server.settings, **how)


def refused(server: PackageServer, folder: Path, match: str, **how: Any) -> None:
    """Check that fetching is refused with one sentence, and that no model is there."""
    with pytest.raises(FetchError, match=match) as error:
        get(server, folder, **how)
    text = str(error.value)
    assert "\n" not in text and text.endswith(".") and ". " not in text
    assert not is_fetched(server.model, folder)


def ranges(server: PackageServer) -> list[str]:
    """Return the ranges that were asked of the wheel."""
    return [asked for path, asked in server.asked if path.endswith(".whl")]


@pytest.mark.parametrize("html", [False, True])
def test_only_the_model_s_file_stays(tmp_path: Path, html: bool) -> None:
    seen: list[tuple[str, int, int]] = []
    with package_server(MODEL, WHEEL, html=html) as server:
        path = get(server, tmp_path, report=lambda *said: seen.append(said))
        assert path.read_bytes() == CONTENT and is_fetched(MODEL, tmp_path)
        assert {x.name for x in path.parent.iterdir()} <= {path.name, ".lock"}
        assert get(server, tmp_path) == path and len(server.asked) == 2, "the second call asks nobody"
    assert ("downloading", len(WHEEL), len(WHEEL)) in seen and seen[-1] == (
        "unpacking",
        len(CONTENT),
        len(CONTENT),
    )
    counts = [done for phase, done, _ in seen if phase == "downloading"]
    assert counts == sorted(counts) and len(counts) > 3, "progress is shown as it goes"


def test_a_connection_that_is_cut_is_made_again_where_it_ended(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL, cuts=[10 * PIECE + 7, 8 * PIECE]) as server:
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert ranges(server) == ["", f"bytes={10 * PIECE}-", f"bytes={18 * PIECE}-"]


def test_a_server_that_always_cuts_ends_with_what_was_fetched(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL, cuts=[6 * PIECE, *([0] * 20)]) as server:
        refused(server, tmp_path, "no answer from .*goes on where it ended")
        assert held_bytes(MODEL, tmp_path) == 6 * PIECE
        assert len(ranges(server)) == download.TRIES + 1
        server.cuts.clear()
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert ranges(server)[-1] == f"bytes={6 * PIECE}-"


def test_a_stopped_download_goes_on_where_it_was(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL) as server:
        done: list[int] = []
        with pytest.raises(FetchStopped, match="bytes are kept"):
            get(
                server,
                tmp_path,
                report=lambda phase, count, total: done.append(count),
                is_stopped=lambda: done[-1] > 900_000,
            )
        held = held_bytes(MODEL, tmp_path)
        assert 900_000 < held < len(WHEEL)
        assert needed_bytes(MODEL, tmp_path) == len(WHEEL) - held + len(CONTENT) + fetch.SPARE
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert ranges(server)[-1] == f"bytes={held}-"


def test_unpacking_can_be_stopped_and_keeps_the_package(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL) as server:
        phases: list[str] = []
        with pytest.raises(FetchStopped):
            get(
                server,
                tmp_path,
                report=lambda phase, count, total: phases.append(phase),
                is_stopped=lambda: phases[-1] == "unpacking",
            )
        assert held_bytes(MODEL, tmp_path) == len(WHEEL) and not is_fetched(MODEL, tmp_path)
        assert get(server, tmp_path).read_bytes() == CONTENT and len(ranges(server)) == 1


def test_a_process_that_is_killed_loses_no_more_than_a_piece(tmp_path: Path) -> None:
    """The process dies in the middle of a report, without any clean-up."""
    with package_server(MODEL, WHEEL) as server:

        def die(phase: str, done: int, total: int) -> None:
            if done > 1_000_000:
                os._exit(9)

        child = multiprocessing.get_context("fork").Process(target=lambda: get(server, tmp_path, report=die))
        child.start()
        child.join(60)
        assert child.exitcode == 9
        held = held_bytes(MODEL, tmp_path)
        assert 1_000_000 - PIECE <= held < len(WHEEL)
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert ranges(server)[-1] == f"bytes={held}-"


def test_a_server_without_ranges_begins_again(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL, cuts=[9 * PIECE], ranges=False) as server:
        assert get(server, tmp_path).read_bytes() == CONTENT
        assert ranges(server) == ["", f"bytes={9 * PIECE}-"]


@pytest.mark.parametrize("length", [1_000, len(WHEEL), len(WHEEL) + 5])
def test_a_part_of_another_file_is_fetched_anew(tmp_path: Path, length: int) -> None:
    part = model_path(MODEL, tmp_path).with_name(f"{MODEL.wheel}.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * length)
    with package_server(MODEL, WHEEL) as server:
        assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_of_the_wheel_keeps_nothing(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL, digest="0" * 64) as server:
        refused(server, tmp_path, "does not have the checksum that its index gives")
        assert held_bytes(MODEL, tmp_path) == 0


def test_another_file_inside_the_wheel_is_refused(tmp_path: Path) -> None:
    """The index vouches for the wheel, but the table knows the checksum of the model itself."""
    other = wheel_with(MEMBER, CONTENT[:-1] + b"?")
    with package_server(replace(MODEL, download_bytes=len(other)), other) as server:
        refused(server, tmp_path, "the checksum of .* differs")
        assert held_bytes(MODEL, tmp_path) == 0


def lie_about_size(wheel: bytes, claimed: int) -> bytes:
    """Return the wheel with another size of its last member, in both of its headers."""
    true = len(CONTENT).to_bytes(4, "little")
    assert wheel.count(true) >= 2, "the guard: local header and directory are changed"
    return wheel.replace(true, claimed.to_bytes(4, "little"))


def test_a_member_that_lies_about_its_size_fills_no_disk(tmp_path: Path) -> None:
    """A file of 30 times the size hides behind the right number: no more than that number is ever written."""
    bomb = wheel_with(MEMBER, b"\0" * (30 * len(CONTENT)))
    claimed = bomb.replace((30 * len(CONTENT)).to_bytes(4, "little"), len(CONTENT).to_bytes(4, "little"))
    most: list[int] = []
    with package_server(replace(MODEL, download_bytes=len(claimed)), claimed) as server:
        refused(
            server,
            tmp_path,
            "is not the package that holds tiny-instruct",
            report=lambda phase, done, total: most.append(done),
        )
    assert max(most) <= len(CONTENT)
    assert not list(model_path(MODEL, tmp_path).parent.glob("*.gguf*"))


@pytest.mark.parametrize("claimed", [len(CONTENT) + 1, 1, 2**31])
def test_a_member_of_another_size_is_refused(tmp_path: Path, claimed: int) -> None:
    wheel = lie_about_size(WHEEL, claimed)
    with package_server(MODEL, wheel) as server:
        refused(server, tmp_path, f"has {claimed:,} bytes in it, and 2,000,000 are expected")


@pytest.mark.parametrize(
    "wheel",
    [b"no archive" * 1000, wheel_with("tiny_model/other.gguf", CONTENT)],
    ids=["no archive", "another file"],
)
def test_a_file_that_is_no_wheel_of_the_model_is_refused(tmp_path: Path, wheel: bytes) -> None:
    with package_server(replace(MODEL, download_bytes=len(wheel)), wheel) as server:
        refused(server, tmp_path, "is not the package that holds tiny-instruct")
        assert held_bytes(MODEL, tmp_path) == 0


def test_a_wheel_of_another_length_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL + b"more") as server:
        refused(server, tmp_path, r"has 2,0\d\d,\d\d\d bytes, and 2,0\d\d,\d\d\d are expected")
        assert held_bytes(MODEL, tmp_path) == 0


def test_a_full_disk_is_said_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "free_bytes_at", lambda path: 3_000_000)
    with package_server(MODEL, WHEEL) as server:
        refused(server, tmp_path, r"needs 21 MB on the disk of .* and 3 MB are free; make room")
        assert server.asked == []


def test_a_disk_that_fills_up_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(download.FileDownload):
        """A download to a disk that takes 600 kB."""

        def _write(self, *how: Any) -> None:
            self.part.write_bytes(b"x" * 600_000)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch, "FileDownload", FullDisk)
    with package_server(MODEL, WHEEL) as server:
        refused(server, tmp_path, "needs 20 MB on the disk .*make room")


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / MODEL.name).write_text("a file")
    with package_server(MODEL, WHEEL) as server:
        refused(server, tmp_path, "cannot be written to .*set XDG_DATA_HOME to another folder")


def test_without_a_network_one_sentence_says_so(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL) as server:
        settings = server.settings
    with pytest.raises(
        FetchError, match=r"could not be fetched: no answer from http.*check the network"
    ) as error:
        fetch_model(MODEL, folder=tmp_path, settings=settings)
    assert "\n" not in str(error.value)


def test_an_index_without_the_package_names_the_way_out(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL, missing=True) as server:
        refused(server, tmp_path, "is not in http.*set PIP_INDEX_URL")
    with pytest.raises(FetchError, match="pip's settings name none"):
        fetch_model(MODEL, folder=tmp_path, settings=IndexSettings(()))


def test_a_second_index_has_it(tmp_path: Path) -> None:
    with package_server(MODEL, WHEEL, missing=True) as first, package_server(MODEL, WHEEL) as second:
        settings = IndexSettings((*first.settings.urls, *second.settings.urls))
        assert fetch_model(MODEL, folder=tmp_path, settings=settings).read_bytes() == CONTENT


def test_a_wheel_in_a_folder_of_find_links_is_used_and_stays(tmp_path: Path) -> None:
    links = tmp_path / "wheels"
    links.mkdir()
    (links / MODEL.wheel).write_bytes(WHEEL)
    path = fetch_model(MODEL, folder=tmp_path / "models", settings=IndexSettings((), (links,)))
    assert path.read_bytes() == CONTENT and (links / MODEL.wheel).read_bytes() == WHEEL


def test_two_processes_do_not_fetch_at_once(tmp_path: Path) -> None:
    lock = model_path(MODEL, tmp_path).parent / ".lock"
    lock.parent.mkdir(parents=True)
    with package_server(MODEL, WHEEL) as server:
        with filelock.FileLock(lock):
            refused(server, tmp_path, "is being fetched by another process")
        assert get(server, tmp_path).is_file()


# ---- settings


def settings_of(monkeypatch: pytest.MonkeyPatch, **pip: str) -> IndexSettings:
    """Return the settings that these words of pip's configuration make."""
    monkeypatch.setattr(package_index, "_pip_configuration", lambda environment: pip)
    return read_settings({})


def test_settings_are_those_of_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settings_of(monkeypatch) == IndexSettings()
    found = settings_of(
        monkeypatch,
        **{
            "index-url": "https://mirror.example/simple/",
            "extra-index-url": "https://second.example/simple file:///not/over/http",
            "find-links": f"{tmp_path} {tmp_path.as_uri()} https://page.example",
            "cert": "ca.pem",
            "trusted-host": "mirror.example",
        },
    )
    assert found.urls == ("https://mirror.example/simple", "https://second.example/simple")
    assert found.folders == (tmp_path, tmp_path)
    assert found.certificates == "ca.pem" and found.trusted == ("mirror.example",)
    assert settings_of(monkeypatch, **{"no-index": "true"}).urls == ()


def test_the_environment_wins_over_pip_s_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        package_index, "_pip_configuration", lambda environment: {"index-url": "https://a/simple"}
    )
    assert read_settings({"PIP_INDEX_URL": "https://b/simple"}).urls == ("https://b/simple",)
    assert read_settings({"UV_DEFAULT_INDEX": "https://c/simple"}).urls == ("https://a/simple",)
    monkeypatch.setattr(package_index, "_pip_configuration", lambda environment: {})
    assert read_settings({"UV_DEFAULT_INDEX": "mirror=https://c/simple"}).urls == ("https://c/simple",)


def test_pip_s_files_are_read_by_pip(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://one/simple\nextra-index-url =\n  https://x\n  https://y\n"
    )
    environment = {**os.environ, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        environment.pop(name, None)
    urls = read_settings(environment).urls
    assert urls[0] == "https://one/simple" and {"https://x", "https://y"} <= set(urls)


def test_passwords_in_addresses_are_not_shown() -> None:
    assert package_index.hide_password("https://me:secret@host:8/simple") == "https://host:8/simple"


# ---- by name


def test_the_table_is_right_about_itself() -> None:
    for model in FETCHABLE:
        assert (
            find_fetchable(model.name) is model and find_fetchable(model.file.removesuffix(".gguf")) is model
        )
        assert (
            model.wheel.startswith(f"{model.package.replace('-', '_')}-{model.version}-")
            and len(model.sha256) == 64
        )
    assert find_fetchable("lab") is None


def test_a_model_that_was_not_fetched_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"not on this machine yet: `decodescope models get smollm2-135m-instruct`.*93 MB"
    ):
        load("smollm2-135m-instruct")


def test_looking_for_models_imports_no_torch() -> None:
    code = "import sys; import decodescope.engine.model.fetched.fetch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
