"""Training of the mask-filling model: its windows, LLaDA's loss, its decoding, and what the shipped model can do."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
import torch.nn.functional as F

from decodescope.engine.bench.questions.parallel_tasks import (
    SETTLED,
    is_right_text,
    make_question,
    make_questions,
)
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import load as load_model
from decodescope.training import data, infill, infill_data, train
from decodescope.training.infill_data import InfillSource, InfillWindows
from decodescope.training.net import MASK, Net, NetShape

ASSETS = Path(__file__).resolve().parents[2] / "assets"

TINY = NetShape(layers=2, width=16, heads=2, kv_heads=1, head_width=8, inner=24, context=64, causal=False)


@pytest.fixture(scope="module")
def source() -> InfillSource:
    return InfillSource({})


def net(shape: NetShape = TINY) -> Net:
    torch.manual_seed(0)
    made = Net(shape)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim == 2:
                weight.mul_(8)  # otherwise no row sees anything
    return made


# ---- the net


def test_the_config_names_the_mask_and_is_read_back():
    config = TINY.config()
    assert (config["use_bidirectional_attention"], config["mask_token_id"], config["use_cache"]) == (
        True,
        MASK,
        False,
    )
    assert NetShape.from_config(config) == TINY
    assert "mask_token_id" not in replace(TINY, causal=True).config()


def test_every_row_sees_both_sides_and_the_engine_computes_the_same(tmp_path):
    made = net()
    made.to_folder(tmp_path / "mdm")
    for part in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "mdm" / part).write_bytes((data.TOKENIZER.parent / part).read_bytes())
    model = load_model(tmp_path / "mdm", "float32", "cpu")
    assert (model.spec.causal, model.spec.mask_token) == (False, MASK)
    ids = torch.randint(14, 4096, (1, 12), generator=torch.Generator().manual_seed(1))
    ids[0, 4:7] = MASK
    mine = Net.from_folder(tmp_path / "mdm").eval()
    with torch.no_grad():
        ours = mine(ids)[0]
        theirs = model.decoder.forward(Feed.causal_chain(ids[0].tolist(), 0), None)[0]
        changed = ids.clone()
        changed[0, -1] = 20
        assert (mine(changed)[0, 0] - ours[0]).abs().max() > 1e-3, "the first row sees the last token"
    assert (ours - theirs).abs().max() < 1e-4


# ---- windows


@pytest.mark.parametrize("kind", ["lists", "latin_square", "sudoku", "cloze"])
def test_a_window_is_a_prompt_and_an_answer_filled_with_end(source, kind):
    rows = source.rows(Random(0), 80 if kind == "cloze" else 40, 12, {kind: 1.0})
    for ids, answer in zip(rows.ids.tolist(), rows.answer.tolist(), strict=True):
        begin = answer.index(True)
        assert all(answer[begin:]) and not any(answer[:begin])
        end = ids.index(data.END)
        assert begin < end and set(ids[end:]) == {data.END}
        assert source.tokenizer.decode(ids[:begin]).endswith(" ->")


def test_the_answers_in_the_windows_are_right(source, monkeypatch):
    asked = []
    monkeypatch.setattr(
        infill_data, "make_question", lambda task, r: asked.append(make_question(task, r)) or asked[-1]
    )
    rows = source.rows(Random(1), 40, 30, {"lists": 1.0, "sudoku": 0.5, "latin_square": 0.5})
    known = {q.prompt: q for q in asked}
    for ids, answer in zip(rows.ids.tolist(), rows.answer.tolist(), strict=True):
        begin = answer.index(True)
        q = known[source.tokenizer.decode(ids[:begin])]
        assert is_right_text(q, source.tokenizer.decode(ids[begin : ids.index(data.END)]))


def test_a_cloze_asks_for_a_word_that_stood_before():
    for i in range(20):
        text, word = infill_data.cloze_pair(Random(i))
        assert text.startswith("fill in: ") and text.endswith(" ->") and " _" in text
        assert f" {word}" in text


def test_programs_and_stories_come_from_the_corpus(source):
    chat = "<|user|>\nWrite it.<|end|>\n<|assistant|>\nreturn x<|end|>\n"
    documents = [
        {"split": "train", "kind": "coding", "text": chat, "chat": True},
        {"split": "train", "kind": "story", "text": "Once there was a small dog. " * 20},
    ]
    both = InfillSource({kind: text for (_, kind), text in data.encode_documents(documents).items()})
    prompt, answer = both.programs(Random(0), 80)
    assert source.tokenizer.decode(prompt, skip_special_tokens=False).endswith("<|assistant|>\n")
    assert source.tokenizer.decode(answer) == "return x"
    rows = both.rows(Random(0), 40, 6, {"stories": 1.0})
    assert data.END not in rows.ids, "a piece of a story fills its window"
    assert all(5 <= row.tolist().index(True) <= 20 for row in rows.answer)


# ---- the objective


def test_the_prompt_is_never_masked_and_the_weights_are_those_of_llada():
    answer = torch.zeros(64, 20, dtype=torch.bool)
    answer[:, 8:] = True
    rows, total = InfillWindows(torch.full((64, 20), 300), answer), torch.zeros(())
    chance = torch.Generator().manual_seed(0)
    for _ in range(200):
        hidden, weight = infill.draw_mask(rows, chance)
        assert not hidden[:, :8].any()
        assert not weight[~hidden].any()
        some = weight[hidden] * 12
        assert (some >= 1 - 1e-6).all(), "no chance is above 1"
        assert all(len(set(w[w > 0].tolist())) <= 1 for w in weight), "one chance a window"
        total += weight.sum() / 64
    assert total / 200 == pytest.approx(1, abs=0.05), "every answer counts once, whatever its chance"


def test_the_loss_is_the_weighted_cross_entropy_at_the_masks():
    made, ids = net(), torch.randint(14, 4096, (3, 10), generator=torch.Generator().manual_seed(2))
    answer = torch.zeros(3, 10, dtype=torch.bool)
    answer[:, 4:] = True
    hidden, weight = infill.draw_mask(InfillWindows(ids, answer), torch.Generator().manual_seed(5))
    loss, _ = infill.loss_of(made, InfillWindows(ids, answer), hidden, weight)
    with torch.no_grad():
        logits = made(ids.masked_fill(hidden, MASK))
        nats = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none").view(3, 10)
    assert loss.item() == pytest.approx((nats * weight).sum().item() / 3, rel=2e-2), "it computes in bfloat16"


@pytest.mark.nightly
def test_training_learns_goes_on_where_it_was_and_writes_a_folder(tmp_path, monkeypatch, source):
    for module, name, value in [
        (data, "BUILD", tmp_path),
        (train, "RECORDS", tmp_path / "records"),
        (infill, "SHAPE", TINY),
        (infill, "PLAN", train.TrainingPlan(256, {}, {}, warmup=2, check=100.0)),
        (data, "load", lambda *_: {}),
        (train.signal, "signal", lambda *_: None),
    ]:
        monkeypatch.setattr(module, name, value)

    def call(*more: str) -> None:
        monkeypatch.setattr(sys, "argv", ["infill.py", "--stage", "lists", "--questions", "1", *more])
        threads = torch.get_num_threads()
        infill.main()
        torch.set_num_threads(threads)

    call("--tokens", "0.02", "--out", str(tmp_path / "whole"), "--as", "whole")
    call("--tokens", "0.01", "--out", str(tmp_path / "half"), "--as", "half")
    call("--tokens", "0.02", "--out", str(tmp_path / "half"), "--as", "half")
    whole, half = (Net.from_folder(tmp_path / x) for x in ("whole", "half"))
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, half.state_dict()[name]), name
    assert (tmp_path / "whole" / "tokenizer.json").exists()
    (record,) = json.loads((tmp_path / "records" / "whole.json").read_text())
    assert record["tokens"] >= 20_000 and record["objective"] == {"masked": True}
    rows = source.rows(Random(9), 16, 64, {"lists": 1.0})
    hidden, weight = infill.draw_mask(rows, torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    assert (
        infill.loss_of(whole, rows, hidden, weight)[0]
        < infill.loss_of(Net(TINY), rows, hidden, weight)[0] - 0.5
    )


# ---- decoding


def test_the_surest_token_is_filled_in_first_and_stays():
    made = net()
    prompts = torch.randint(14, 4096, (3, 6), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        first = made(torch.cat((prompts, torch.full((3, 4), MASK)), 1))[:, 6:]
    first[..., MASK] = -torch.inf
    at_once = infill.fill_canvas(made, prompts, 4, 1)
    assert (at_once == first.argmax(2)).float().mean() > 0.9  # bfloat16 against float32
    one_by_one = infill.fill_canvas(made, prompts, 4, 4)
    assert MASK not in one_by_one
    sure = first.softmax(2).amax(2).argmax(1)
    same = [one_by_one[i, at] == at_once[i, at] for i, at in enumerate(sure)]
    assert sum(same) >= 2
    assert MASK not in infill.fill_canvas(made, prompts, 7, 3), (
        "as many as there are, also where they do not divide"
    )


# ---- the shipped model


def test_the_shipped_model_answers_lists_one_token_a_pass(source):
    made = Net.from_folder(ASSETS / "models" / infill.NAME).eval()
    asked = make_questions(SETTLED, 40, 123)
    marks = infill.marks_of(made, source, asked, infill.CANVAS, infill.CANVAS)
    shares = {task: sum(some) / len(some) for task, some in marks.items()}
    assert sum(shares.values()) / len(SETTLED) >= 0.95, shares
    blank = infill.marks_of(Net(made.shape), source, asked[:40], infill.CANVAS, infill.CANVAS)
    assert not any(blank["copy"]), "the guard must fail on a model that learnt nothing"


def test_the_card_is_of_the_shipped_model():
    from decodescope.training import infill_card

    page = (ASSETS / "models" / "MDM.md").read_text()
    made = Net.from_folder(ASSETS / "models" / infill.NAME)
    runs = json.loads((ASSETS.parent / "training" / "records" / f"{infill.NAME}.json").read_text())
    assert f"{sum(w.numel() for w in made.parameters()):,} numbers" in page
    assert f"{sum(r['tokens'] for r in runs) / 1e6:.2f} M tokens" in page
    assert all(f"| `{task}` |" in page for task in infill_card.TASKS)
    assert infill_card.perfect_score("copy") == "100%" and infill_card.perfect_score("sudoku") == "-"
