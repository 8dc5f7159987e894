"""The picture models: their tokens, how a picture is read, and that the shipped ones distinguish digits from noise."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from decodescope.engine import MethodError, run
from decodescope.engine.session.load import load
from decodescope.training import digits, train
from decodescope.training import digits_data as d
from decodescope.training.digits_data import Pictures
from decodescope.training.net import Net, NetShape

ASSETS = Path(__file__).resolve().parents[2] / "assets"

MODELS = [name for name in digits.SHAPES if (ASSETS / "models" / name).exists()]
TINY = dict(layers=1, width=16, heads=2, kv_heads=2, head_width=8, inner=16, context=256)


def made_up(count: int = 12) -> Pictures:
    """Made-up pictures: a bright bar at the place of its class, on background noise of levels 0 and 1."""
    chance = torch.Generator().manual_seed(0)
    classes = torch.arange(count) % 8
    levels = torch.randint(2, (count, d.SIDE, d.SIDE), generator=chance)
    levels[torch.arange(count), :, classes] = 15
    return Pictures(levels, classes)


# ---- tokens


@pytest.mark.parametrize("cells", [False, True])
def test_a_class_a_level_and_an_instruction_are_a_token_each(cells: bool) -> None:
    tokenizer = d.make_tokenizer(cells)
    assert tokenizer.get_vocab_size() == d.vocabulary_size(cells) and tokenizer.token_to_id(d.END) == 0
    picture = d.picture_config(cells)
    assert [tokenizer.id_to_token(x) for x in picture["levels"]] == list(d.GLYPHS)
    text = "7.M\n W#"
    assert tokenizer.encode(text).tokens == ["7", ".", "M", "W", "#"], "white space is passed over"
    if cells:
        assert [tokenizer.id_to_token(x) for x in picture["cells"]][8:10] == ["@1,0", "@1,1"]
        assert tokenizer.encode("7@0,3.@7,7W").tokens == ["7", "@0,3", ".", "@7,7", "W"]
    assert set(tokenizer.encode("ab@9,9").tokens) == {d.UNKNOWN, "9", ","}, (
        "what it does not know is seen to be unknown"
    )


def test_a_picture_in_raster_order_is_its_class_its_levels_and_an_end() -> None:
    some = made_up(3)
    rows = d.raster_windows(some)
    assert (
        rows.ids.shape == (3, 66)
        and (rows.ids[:, 0] == 3 + some.classes).all()
        and (rows.ids[:, -1] == 0).all()
    )
    assert torch.equal(rows.ids[:, 1:-1].view(3, 8, 8) - d.FIRST_LEVEL, some.levels)
    assert rows.levels.sum() == 3 * 64 and (rows.weight[:, 1:] == 1).all()


def test_in_any_order_each_level_stands_behind_the_instruction_of_its_cell() -> None:
    some = made_up(4)
    rows = d.any_order_windows(some, torch.Generator().manual_seed(1), 0.1)
    assert rows.ids.shape == (4, 130)
    cells, levels = rows.ids[:, 1:-1:2] - d.FIRST_CELL, rows.ids[:, 2:-1:2] - d.FIRST_LEVEL
    assert (cells.sort(1).values == torch.arange(64)).all() and not torch.equal(cells[0], cells[1])
    assert torch.equal(levels, some.levels.flatten(1).gather(1, cells))
    others = rows.weight[:, 1:][~rows.levels[:, 1:]]
    assert (rows.weight[rows.levels] == 1).all() and others.unique().tolist() == [pytest.approx(0.1)]


def test_a_picture_that_is_moved_keeps_its_ink() -> None:
    levels = torch.zeros(400, 8, 8, dtype=torch.long)
    levels[:, 2:6, 3:5] = 9
    levels[200:, :, 3] = 4  # touches the upper and the lower edge
    moved = d.shift_pictures(levels, torch.Generator().manual_seed(0))
    assert (moved.sum((1, 2)) == levels.sum((1, 2))).all()
    ways = {tuple(x.nonzero()[0].tolist()) for x in moved[:200]}
    assert ways == {(2, 3), (1, 3), (3, 3), (2, 2), (2, 4)}, "as it was, and by a cell in each direction"
    assert (moved[200:, 0] > 0).any(1).all(), "these go to the left and right alone"


def test_levels_are_read_wrong_by_one_and_nothing_else_is() -> None:
    rows = d.any_order_windows(made_up(), torch.Generator().manual_seed(0), 0.1)
    torch.manual_seed(0)
    read = d.blur_levels(rows, 0.5)
    off = (read - rows.ids).abs()
    assert (
        off.max() == 1 and not off[~rows.levels].any() and 0.2 < float(off[rows.levels].float().mean()) < 0.6
    )
    assert read[rows.levels].min() >= d.FIRST_LEVEL and read[rows.levels].max() < d.FIRST_CELL


def test_the_counted_laws_are_what_counting_gives() -> None:
    some = made_up(800)
    found = d.counted_baselines(some, some)
    assert found["place"] < found["levels"]
    assert found["levels"] < math.log(16)
    shares = torch.bincount(some.levels.flatten(), minlength=16) + 1
    law = shares / shares.sum()
    assert found["levels"] == pytest.approx(-float(law[some.levels].log().mean()), rel=1e-5)


# ---- training


@pytest.mark.parametrize("cells", [False, True])
def test_some_steps_teach_it_pictures_by_rule_and_the_folder_is_whole(cells: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    some = made_up(64)
    net = Net(NetShape(**TINY, vocabulary=d.vocabulary_size(cells)))
    training = digits.DigitsTrainer(
        net, some, cells, train.TrainingPlan(1024, {}, {}, warmup=4), (0.02, 0.02)
    )
    before = training.measure({"held out": some})["cell"]
    for _ in range(30):
        training.update()
    assert training.measure({"held out": some})["cell"] < before - 1
    digits.write(net, tmp_path / "m", cells)
    model = load(tmp_path / "m", "float32", "cpu")
    assert model.spec.picture is not None and model.spec.picture.size == 64 and model.stop_tokens == [0]
    assert len(model.spec.picture.cells) == 64 * cells
    assert json.loads((tmp_path / "m" / "config.json").read_text())["picture"] == d.picture_config(cells)


# ---- what is shipped


def test_lab_digits_writes_a_whole_picture_and_ends() -> None:
    model = load("lab-digits", "float32", "cpu")
    tokens = run(model, {"sampler": "temperature"}, "3", max_new_tokens=126, seed=1).tokens
    assert (
        tokens[-1] in model.stop_tokens
        and len(tokens) == 65
        and set(tokens[:-1]) <= set(model.spec.picture.levels)
    )


def test_lab_digits_any_is_told_the_cells() -> None:
    model = load("lab-digits-any", "float32", "cpu")
    asked = {"strategy": "randar", "sampler": "temperature"}
    made = [run(model, asked, str(k), max_new_tokens=64, seed=2) for k in range(3)]
    assert all(len(x.tokens) == 64 and set(x.tokens) <= set(model.spec.picture.levels) for x in made)
    with pytest.raises(MethodError, match="has to be given the next cell"):
        run(model, {"sampler": "temperature"}, "3")


@pytest.mark.parametrize("name", MODELS)
def test_the_shipped_model_knows_a_digit_from_noise(name: str) -> None:
    """A hand-made one is likelier than the same levels shuffled, and likelier under its class than under another."""
    net = Net.from_folder(ASSETS / "models" / name).eval()
    one = torch.zeros(8, 8, dtype=torch.long)
    one[:, 3:5] = 14
    one[1:3, 2] = 8
    mixed = one.flatten()[torch.randperm(64, generator=torch.Generator().manual_seed(0))].view(8, 8)
    cells = name.endswith("any")
    found = [
        digits.nats(net, Pictures(x[None], torch.tensor([k])), cells)
        for x, k in ((one, 1), (mixed, 1), (one, 0))
    ]
    assert found[0] < found[1] - 0.5 and found[0] < found[2]


def test_a_model_of_another_vocabulary_is_no_draft_for_it() -> None:
    with pytest.raises(
        MethodError, match=r"^lab-draft cannot be the draft model of lab-digits: their tokenizers differ"
    ):
        run("lab-digits", "draft_model", "7", models={"draft": "lab-draft"})
