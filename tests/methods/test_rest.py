"""REST: the draft is the most frequent part of what a plain search finds in the datastore; the file is checked first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import toys
from drafting import drafts, path_of

from decodescope.engine import Session
from decodescope.engine.core.params import ParamError
from decodescope.engine.methods.drafters.lookup import rest
from decodescope.engine.methods.drafters.lookup.rest import frequent_prefixes
from decodescope.engine.methods.drafters.shared.datastore import LARGEST, load_datastore, shipped_texts
from decodescope.engine.session.load import load
from decodescope.engine.session.method import MethodError

IDS = [int(x) for x in Path(toys.DATASTORE).read_text().split()]


def places(text: list[int], knobs: dict) -> tuple[int, list[int]]:
    """The definition as a search: the longest suffix with a hit, and all its hits."""
    for n in range(min(knobs["max_suffix"], len(text)), knobs["min_suffix"] - 1, -1):
        hits = [i for i in range(len(IDS) - n + 1) if IDS[i : i + n] == text[-n:]]
        if hits:
            return n, hits
    return 0, []


@pytest.mark.parametrize(
    "knobs",
    [
        dict(nodes=64, max_suffix=16, min_suffix=2, depth=10),
        dict(nodes=5, max_suffix=3, min_suffix=1, depth=4),
    ],
)
def test_draft_is_the_most_frequent_of_what_a_search_finds(knobs: dict) -> None:
    cut = found = 0
    for text, draft, _ in drafts("rest", dict(datastore=toys.DATASTORE, **knobs), steps=25):
        n, hits = places(text, knobs)
        assert bool(draft) == bool(hits)
        if not draft:
            continue
        assert (draft.notes["suffix"], draft.notes["hits"]) == (n, len(hits))
        assert set(draft.notes["offsets"]) <= set(hits) and len(draft.notes["offsets"]) == min(8, len(hits))
        counts = Counter(
            tuple(IDS[i + n : end])
            for i in hits
            for end in range(i + n + 1, min(len(IDS), i + n + knobs["depth"]) + 1)
        )
        drafted = [tuple(path_of(draft, node)) for node in range(len(draft))]
        assert len(set(drafted)) == len(draft) == min(knobs["nodes"], len(counts))
        assert (
            draft.notes["counts"]
            == [counts[x] for x in drafted]
            == sorted(counts.values(), reverse=True)[: len(draft)]
        )
        cut, found = cut + (len(counts) > len(draft)), found + 1
    assert found > 10 and (cut > 5 or knobs["nodes"] == 64)


def test_example_by_hand() -> None:
    """The suffix is followed by 5 6 7, 5 6 8 and a final 9: 5 twice, 5 6 twice, then the single ones, the shorter first."""
    rows = np.array([[5, 6, 7], [5, 6, 8], [9, -1, -1]])
    assert frequent_prefixes(rows, 64) == ([5, 6, 9, 7, 8], [-1, 0, -1, 1, 1], [2, 2, 1, 1, 1])
    assert frequent_prefixes(rows, 3) == ([5, 6, 9], [-1, 0, -1], [2, 2, 1])
    assert frequent_prefixes(np.array([[-1, -1]]), 3) == ([], [], [])


def test_of_many_places_an_even_share_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """100 times 1 2, then 300 times 1 3: of 40 places 10 are followed by 2."""
    monkeypatch.setattr(rest, "HITS", 40)
    file = tmp_path / "ids.txt"
    file.write_text("1 2 " * 100 + "1 3 " * 300)
    settings = dict(datastore=str(file), max_suffix=1, min_suffix=1, depth=1)
    session = Session(toys.pair()[0], toys.method(drafter=("rest", settings)), [5, 1])
    session.start()
    draft = session.drafter.propose(session.context)
    assert (draft.tokens, draft.notes["counts"], draft.notes["hits"]) == ([3, 2], [30, 10], 400)


def test_a_datastore_that_holds_the_answer_is_accepted_whole(tmp_path: Path) -> None:
    target, file = toys.pair()[0], tmp_path / "answer.txt"
    text = toys.greedy_text(target.decoder, toys.PROMPT, 40)
    file.write_text(" ".join(map(str, toys.PROMPT + text)))
    session = toys.decode(toys.method(drafter=("rest", dict(datastore=str(file), depth=9))), count=40)
    assert session.end.tokens == text and [step.accepted for step in session.sink.steps] == [9, 9, 9, 9]


def test_without_a_hit_the_target_goes_on_alone(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("12 12 12")
    session = Session(toys.pair()[0], toys.method(drafter=("rest", dict(datastore=str(file)))), toys.PROMPT)
    session.start()
    assert not session.drafter.propose(session.context)


def test_ids_that_the_model_lacks_part_the_text(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("1 2 99 3 -4 1 2")
    assert load_datastore(str(file), None, 13).ids.tolist() == [1, 2, -1, 3, -1, 1, 2, -1]


def test_a_file_is_read_once_and_again_when_it_changed(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("1 2 3")
    first = load_datastore(str(file), None, 13)
    assert load_datastore(str(file), None, 13) is first
    file.write_text("1 2 3 4")
    assert load_datastore(str(file), None, 13).ids.tolist() == [1, 2, 3, 4, -1]


def test_a_file_that_cannot_serve_is_refused_before_the_run(tmp_path: Path) -> None:
    empty, large = tmp_path / "empty.txt", tmp_path / "large.txt"
    empty.touch()
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)
    for path, why in (
        (tmp_path / "none.txt", "there is no file"),
        (tmp_path, "there is no file"),
        ("~nobody-lives-here/x", "cannot be read|there is no file"),
        (empty, "has 0 bytes"),
        (large, f"has {LARGEST + 1} bytes"),
    ):
        with pytest.raises(MethodError, match=rf"^rest\.datastore: .*({why}).*\.$"):
            Session(toys.pair()[0], toys.method(drafter=("rest", dict(datastore=str(path)))), toys.PROMPT)
    with pytest.raises(
        MethodError, match=r"^rest\.min_suffix = 5: must not be above rest\.max_suffix, which is 4\.$"
    ):
        Session(toys.pair()[0], toys.method(drafter=("rest", dict(min_suffix=5, max_suffix=4))), toys.PROMPT)


def test_without_a_tokenizer_there_must_be_a_file_of_ids(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("one two")
    session = Session(toys.pair()[0], toys.method(drafter=("rest", dict(datastore=str(words)))), toys.PROMPT)
    with pytest.raises(ParamError, match=r"is no list of ids: .*\.$"):
        session.start()
    assert all(step.drafted == 0 for step in toys.decode(toys.method(drafter="rest"), count=5).sink.steps)


def test_the_shipped_text_is_read_with_the_models_tokenizer() -> None:
    lab = load("lab", "float32", "cpu")
    assert len(shipped_texts()) > 800 and all(shipped_texts())
    store = load_datastore("", lab.tokenizer.encode_plain, lab.decoder.vocab)
    assert len(store) == sum(len(lab.tokenizer.encode_plain(x)) + 1 for x in shipped_texts())
    prompt = lab.tokenizer.encode("Finish the function. Write only its")
    session = Session(lab, toys.method(drafter="rest"), prompt, max_new_tokens=4)
    session.start()
    assert session.drafter._store is store
    draft = session.drafter.propose(session.context)
    first = lab.tokenizer.decode(draft.tokens[:1])
    assert first and " body".startswith(first), "many tasks end so"
    assert session.branch().drafter._store is store, "a branch shares it"


def test_a_text_file_is_cut_into_the_models_tokens(tmp_path: Path) -> None:
    lab = load("lab", "float32", "cpu")
    file = tmp_path / "tale.txt"
    file.write_text("Once upon a time a fox went to the market.")
    plain = lab.tokenizer.encode_plain
    assert load_datastore(str(file), plain, lab.decoder.vocab).ids.tolist() == [*plain(file.read_text()), -1]
