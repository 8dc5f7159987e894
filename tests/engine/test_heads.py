"""Draft heads in general: the table of token shifts, their folders, and the tree that measured accuracies give."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import cast

import pytest
import torch
import toys
from safetensors.torch import load_file, save_file

from decodescope.engine.methods.drafters.shared.trees import ROOT, shaped_tree
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.heads.base import FusedLinears, Head, HeadLinear
from decodescope.engine.model.heads.drafting.shift import head_shifts
from decodescope.engine.model.heads.files import HEADS, find_head_folders, read_heads, write_head

# ---- shifts


def test_shift_table_says_which_token_each_head_reads_and_guesses() -> None:
    """t is the last token that the target has read; t + 1 is the root, so the draft begins at t + 2.

    Kangaroo reads the root itself, so for it t is the root and the draft begins at t + 1.
    """
    lines = {
        "medusa": [((), 1, 2), ((), 1, 3), ((), 1, 4)],
        "hydra": [((1,), 1, 2), ((1, 2), 2, 3), ((1, 2, 3), 3, 4)],
        "eagle": [((1,), 1, 2)],
        "eagle3": [((1,), 1, 2), ((2,), 2, 3), ((3,), 3, 4)],
        "kangaroo": [((), 0, 1)],
        "blockwise": [((), 1, 2), ((), 1, 3), ((), 1, 4)],
        "mlp_speculator": [((1,), 1, 2), ((1, 2), 2, 3), ((1, 2, 3), 3, 4)],
        "redrafter": [((1,), 1, 2), ((1, 2), 2, 3), ((1, 2, 3), 3, 4)],
        "fspad": [((1,), 1, 2)],
        "parallelspec": [((1,), 1, 2), ((1,), 1, 3), ((1,), 1, 4)],
        "p_eagle": [((1,), 1, 2), ((1,), 1, 3), ((1,), 1, 4)],
        "mtp": [((1,), 1, 2)],
        "clover": [((1,), 1, 2), ((1, 2), 2, 3), ((1, 2, 3), 3, 4)],
        "dflash": [((1,), 1, 2), ((1,), 1, 3), ((1,), 1, 4)],
        "dspark": [((1,), 1, 2), ((1, 2), 2, 3), ((1, 3), 3, 4)],
    }
    assert {kind: [(s.reads, s.known, s.says) for s in head_shifts(kind, 3)] for kind in HEADS} == lines
    with pytest.raises(ValueError, match="there are medusa, hydra, eagle, eagle3, kangaroo, blockwise"):
        head_shifts("daisy")


@pytest.mark.parametrize("kind", HEADS)
def test_rows_of_a_text_line_up(kind: str) -> None:
    """In the test's text, the token at place i is i, and the distribution at place i is that of token i + 1."""
    ids = torch.arange(9).expand(2, 9)
    for s in head_shifts(kind, 3):
        t = s.align(ids, 0)
        assert t.shape == (2, s.rows(9)) and t[0].tolist() == list(range(9 - s.says))
        assert all(torch.equal(s.align(ids, x), t + x) for x in s.reads)
        assert torch.equal(s.align_target(ids + 1), t + s.says), (
            "the law of token t + says is computed one place before it"
        )
        assert max(s.reads, default=0) <= s.known < s.says, "no head sees what it is to guess"


# ---- folders


@pytest.mark.parametrize("kind", HEADS)
def test_heads_are_written_and_read_back(kind: str, tmp_path: Path) -> None:
    head = toys.heads(kind, 32)
    head.rates, head.made_for, head.threshold = ((0.5, 0.25), (0.375,)), "abc", 0.75
    write_head(head, tmp_path / "heads" / kind, {"more": 1})
    assert find_head_folders(tmp_path) == {kind: tmp_path / "heads" / kind}
    found = read_heads(tmp_path, toys.SPEC, torch.float64, torch.device("cpu"))[kind]
    assert type(found) is type(head) and found.shape == head.shape and found.dtype == torch.float64
    assert (found.rates, found.made_for, found.threshold) == (head.rates, head.made_for, 0.75)
    for name, x in head.tensors().items():
        assert torch.equal(found.tensors()[name], x.bfloat16().double())
    assert not any(p.requires_grad for p in found.parameters())
    assert {x.name for x in (tmp_path / "heads" / kind).iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", HEADS)
def test_packed_heads_hold_and_say_the_same(kind: str, dtype: torch.dtype) -> None:
    plain = toys.heads(kind, 32).copy_to(dtype=dtype)
    packed = plain.pack_weights()
    tensors = packed.tensors()
    assert tensors.keys() == plain.state_dict().keys()
    assert all(torch.equal(x, tensors[name]) for name, x in plain.state_dict().items())
    assert packed.dtype == dtype and not any(p.requires_grad for p in packed.parameters())
    again = packed.copy_to(dtype=torch.float64)
    assert again.state_dict().keys() == plain.state_dict().keys(), (
        "another type is made of the rows as the file has them"
    )
    parts = {
        name: part for name, part in plain.named_modules() if isinstance(part, FusedLinears | HeadLinear)
    }
    for name, part in packed.named_modules():
        if isinstance(part, FusedLinears):
            x = torch.randn(3, getattr(parts[name], part.joins[0]).in_features, dtype=dtype)
            assert torch.allclose(
                part.project_all(x), cast(FusedLinears, parts[name]).project_all(x), atol=1e-5
            )
            assert not any(hasattr(part, x) for x in part.joins), "the separate ones are not kept beside"
        if isinstance(part, HeadLinear):
            x = torch.randn(3, part.in_features, dtype=dtype)
            assert torch.allclose(part(x), cast(HeadLinear, parts[name])(x), atol=1e-5)


def test_copies_of_a_session_share_the_weights() -> None:
    head = toys.heads("eagle", 32)
    assert copy.deepcopy({"a": [head]})["a"][0] is head


def config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        said = json.loads((folder / "config.json").read_text())
        shape = {**said["shape"], **{k: v for k, v in changes.items() if k in said["shape"]}}
        rest = {k: v for k, v in changes.items() if k not in said["shape"]}
        (folder / "config.json").write_text(json.dumps({**said, "shape": shape, **rest}))

    return edit


def tensors(edit: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        edit(found)
        save_file(found, folder / "model.safetensors")

    return change


def link(folder: Path) -> None:
    away = folder.parent.parent.parent / "elsewhere" / "medusa"
    away.parent.mkdir()
    folder.rename(away)
    folder.symlink_to(away)


def held(model: Path, given: dict[str, Path] | None = None) -> dict[str, Head]:
    """Read the heads of a folder for a model of the toys' shape."""
    return read_heads(model, toys.SPEC, torch.float32, torch.device("cpu"), given)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (config(kind="eagle"), "holds heads of the kind 'eagle', not medusa."),
        (config(kind=["medusa"]), "holds heads of the kind"),
        (config(shape={"d": 32}), "the shape of medusa heads says d, heads"),
        (config(shape="large"), "the shape of medusa heads says d, heads"),
        (config(d=16), "reads states of width 16, those of toy have 32"),
        (config(heads=1 << 30), "heads = 1073741824 must be a whole number up to 16"),
        (config(heads=-1), "heads = -1 must be a whole number"),
        (config(heads=True), "heads = True must be a whole number"),
        (config(heads=4), "blocks.3.bias is missing, unknown, or of another shape"),
        (config(rates=[[2.0]]), "rates must be lists of numbers from 0 to 1"),
        (config(rates={"0": 1}), "rates must be lists"),
        (config(threshold=1.5), "threshold = 1.5 must be a number from 0 to 1; train the head again."),
        (config(threshold="low"), "threshold = low must be a number from 0 to 1"),
        (config(threshold=True), "threshold = True must be a number from 0 to 1"),
        (tensors(lambda x: x.pop("blocks.0.bias")), "blocks.0.bias is missing"),
        (tensors(lambda x: x.update(more=torch.zeros(2))), "more is missing, unknown"),
        (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
        (link, "is a link that leads out of the model's folder"),
    ],
)
def test_damaged_heads_are_refused_with_one_sentence(
    edit: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model" / "heads" / "medusa"
    write_head(toys.heads("medusa", 32), folder)
    assert held(tmp_path / "model")["medusa"].kind == "medusa", "the heads are good before they are damaged"
    edit(folder)
    with pytest.raises(LoadError) as refusal:
        held(tmp_path / "model")
    text = str(refusal.value)
    assert says in text and text.endswith(".") and "\n" not in text


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("kangaroo", dict(layer=3), "leaves after layer 3 of the 3 of toy"),
        ("eagle", dict(n_kv_heads=3), "n_heads must be a multiple of n_kv_heads"),
        ("eagle", dict(head_dim=7), "head_dim even"),
    ],
)
def test_shapes_that_cannot_be_are_refused(kind: str, changes: dict, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "model" / "heads" / kind
    write_head(toys.heads(kind, 32), folder)
    config(**changes)(folder)
    with pytest.raises(LoadError, match=says):
        held(tmp_path / "model")


def test_heads_from_elsewhere_take_the_place_of_the_model_s_own(tmp_path: Path) -> None:
    write_head(toys.heads("medusa", 32), tmp_path / "model" / "heads" / "medusa")
    elsewhere = tmp_path / "mine"
    other = toys.heads("medusa", 32)
    with torch.no_grad():
        for x in other.parameters():
            x.fill_(0.5)
    write_head(other, elsewhere)
    made = held(tmp_path / "model", {"medusa": elsewhere})
    assert list(made) == ["medusa"] and all((x == 0.5).all() for x in made["medusa"].tensors().values())
    with pytest.raises(
        LoadError, match=r"no heads called 'daisy'; the kinds are medusa, hydra, eagle, eagle3, .*\.$"
    ):
        held(tmp_path / "model", {"daisy": elsewhere})
    with pytest.raises(LoadError, match=r"absent has no config.json; give the folder of trained heads\.$"):
        held(tmp_path / "model", {"eagle": tmp_path / "absent"})


def test_folders_of_unknown_kinds_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "heads" / "daisy").mkdir(parents=True)
    (tmp_path / "heads" / "daisy" / "config.json").write_text("{}")
    assert find_head_folders(tmp_path) == {}


# ---- trees


RATES = ((0.6, 0.2, 0.1), (0.5, 0.3), (0.4, 0.05))


def nodes_of(rates: tuple[tuple[float, ...], ...]) -> dict[tuple[int, ...], float]:
    """Map each rank path to the product of the rates on it, for every possible node."""
    made, level = {}, {(): 1.0}
    for row in rates:
        level = {(*path, r): value * rate for path, value in level.items() for r, rate in enumerate(row)}
        made |= level
    return made


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_tree_of_measured_rates_is_the_best_closed_one(count: int) -> None:
    values = nodes_of(RATES)
    best = max(
        sum(values[x] for x in chosen)
        for chosen in combinations(values, count)
        if all(x[:-1] in ((), *chosen) and (x[-1] == 0 or (*x[:-1], x[-1] - 1) in chosen) for x in chosen)
    )
    tree = shaped_tree(RATES, count)
    assert len(tree) == count and tree.expected == pytest.approx(1 + best)
    paths: dict[int, tuple[int, ...]] = {ROOT: ()}
    for node, (parent, rank) in enumerate(zip(tree.parents, tree.ranks, strict=True)):
        paths[node] = (*paths[parent], rank)
        assert tree.children[parent].index(node) == rank
    assert 1 + sum(values[paths[node]] for node in range(count)) == pytest.approx(tree.expected)


def test_tree_ends_where_there_are_no_more_rates() -> None:
    assert len(shaped_tree(RATES, 500)) == 3 + 3 * 2 + 3 * 2 * 2
    level = shaped_tree(((0.2, 0.5, 0.0, 0.1),), 4)
    assert level.ranks == (0, 1, 2, 3), "a rate that rises counts as the one before it: ranks stand in order"
    assert level.expected == pytest.approx(1.4)
