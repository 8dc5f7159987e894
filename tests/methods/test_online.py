"""Online speculative decoding: the draft model improves while it drafts, for itself alone, and the distribution stays."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
import toys

from decodescope.engine import Method, Session
from decodescope.engine.core.component import build
from decodescope.engine.methods.drafters.shared.learner import LOSSES, MOST_BYTES, Learner, distillation_loss
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check
from decodescope.testing.reference import Warp, text_distribution
from decodescope.testing.transformer import logits_by_prefix
from decodescope.testing.walk import Walk, distribution_distance

FAR = toys.draft(torch.float64, 0.6, toys.LIVELY)  # a draft model that is seldom right


def session(
    settings: dict, sampler: Any = "greedy", draft: Model = FAR, target: Model | None = None, **more
) -> Session:
    models = (target or toys.pair()[0], draft)
    return toys.decode(toys.method(drafter=("online", settings), sampler=sampler), pair=models, **more)


def notes(made: Session) -> list[dict[str, Any]]:
    return [step.draft.notes["online"] for step in made.sink.steps if step.draft]


def weights(decoder: Decoder) -> list[torch.Tensor]:
    layers = [x for one in decoder.layers for f in fields(one) if (x := getattr(one, f.name)) is not None]
    return [decoder.embed, decoder.norm, decoder.head, *layers]


def logits_of(decoder: Decoder, text: list[int]) -> torch.Tensor:
    """float [V]: the logits after a text, computed without a cache."""
    with torch.inference_mode():
        return decoder.forward(Feed.causal_chain(text, 0), None)[0, -1]


# ---- purpose


def accepted(made: Session, part: slice) -> float:
    """Share of the judged tokens that were accepted."""
    steps = [step for step in made.sink.steps if step.draft][part]
    return sum(x.accepted for x in steps) / sum(min(x.accepted + 1, x.drafted) for x in steps)


def last_token_alone() -> Model:
    """A target whose layers add nothing: its distribution depends only on the last token, and its texts repeat themselves."""
    decoder = toys.decoder(seed=6, dtype=torch.float64)
    for layer in decoder.layers:
        layer.out, layer.down = layer.out * 0, layer.down * 0
    return toys.model(decoder)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "sampler", ["greedy", ("temperature", {"temperature": 0.8})], ids=["greedy", "drawn"]
)
def test_acceptance_rises_along_a_text_that_repeats_itself_and_not_without_learning(sampler: Any) -> None:
    """The same text with a rate of 0 and with a positive rate, by thirds; the draft model knows nothing of the target."""
    pair, found = (last_token_alone(), toys.model(toys.decoder(seed=7, dtype=torch.float64))), {}
    for rate in (0.0, 3e-3):
        made = toys.decode(
            toys.method(
                drafter=("online", dict(max_draft_tokens=3, update_interval=4, learning_rate=rate)),
                sampler=sampler,
            ),
            count=90,
            pair=pair,
        )
        third = len(made.sink.steps) // 3
        found[rate] = accepted(made, slice(None, third)), accepted(made, slice(-third, None))
        assert notes(made)[-1]["updates"] > 3 and check(made.sink).ok
    assert found[3e-3][1] > max(found[3e-3][0], found[0.0][1]) + 0.15, found


def test_a_repeated_prompt_is_drafted_better_after_it_was_learned() -> None:
    """The learner of one run drafts the same text again with fixed weights, compared with the shipped draft model."""
    target = last_token_alone()
    taught = session(
        dict(max_draft_tokens=3, update_interval=2, learning_rate=3e-3), draft=FAR, count=60, target=target
    )
    shares = []
    for small in (FAR, toys.model(taught.lanes["draft"].decoder)):
        made = toys.decode(
            toys.method(drafter=("draft_model", {"max_draft_tokens": 3})), count=60, pair=(target, small)
        )
        assert made.tokens == taught.tokens
        shares.append(accepted(made, slice(None)))
    assert shares[1] > shares[0] + 0.1, shares


# ---- one update


def test_an_update_by_hand() -> None:
    """The first step of AdamW moves every weight by rate * g / (|g| + 1e-8).

    g comes from finite differences of the soft cross-entropy at the places, which is the recorded loss.
    """
    text, rows, rate = toys.PROMPT, [4, 9], 1e-3
    p = torch.rand(2, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(-1)
    plain = toys.noisy_decoder(FAR.decoder, 0.0)

    def loss() -> float:
        q = torch.stack([logits_of(plain, text[: row + 1]) for row in rows]).log_softmax(-1)
        return float(-(p * q).sum(-1).mean())

    learner = Learner(FAR.decoder, rate)
    assert learner.learn(text, 0, rows, p) == pytest.approx(loss(), abs=1e-12)
    g = torch.Generator().manual_seed(2)
    moved, checked = list(zip(weights(FAR.decoder), weights(plain), weights(learner), strict=True)), 0
    norm = torch.cat([(a - c).flatten() for a, _, c in moved]).norm()
    assert norm > 0
    for shipped, mine, new in moved:
        at = tuple(int(torch.randint(n, (), generator=g)) for n in mine.shape)
        kept, slopes = float(mine[at]), []
        for h in (1e-6, -1e-6):
            mine[at] = kept + h
            slopes.append(loss())
        mine[at] = kept
        slope = (slopes[0] - slopes[1]) / 2e-6
        if abs(slope) > 1e-4:
            assert float(shipped[at] - new[at]) == pytest.approx(rate * (1 if slope > 0 else -1), rel=1e-3)
            checked += 1
    assert checked > 5, "the test needs weights that matter"


def test_losses_by_hand() -> None:
    """Two tokens: p = (3/4, 1/4), q = (1/2, 1/2)."""
    p, z = torch.tensor([[0.75, 0.25]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    ln = torch.tensor([2.0, 0.75, 0.25, 0.5, 0.625, 0.375], dtype=torch.float64).log().tolist()
    two, a, b, half, high, low = ln
    assert float(distillation_loss(p, z, "forward")) == pytest.approx(two)
    assert float(distillation_loss(p, z, "reverse")) == pytest.approx(0.5 * (half - a) + 0.5 * (half - b))
    first, second = 0.75 * (a - high) + 0.25 * (b - low), 0.5 * (half - high) + 0.5 * (half - low)
    assert float(distillation_loss(p, z, "jsd")) == pytest.approx((first + second) / 2)
    for loss in LOSSES[1:]:
        assert float(distillation_loss(p, p.log(), loss)) == pytest.approx(0, abs=1e-12), (
            "no distance from itself"
        )
        sharp = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        assert distillation_loss(sharp, z, loss).isfinite(), "a law may hold zeros"


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_comes_down_and_brings_the_laws_nearer(loss: str) -> None:
    p = torch.stack([logits_of(toys.pair()[0].decoder, toys.PROMPT[: row + 1]) for row in (5, 12)]).softmax(
        -1
    )
    learner = Learner(FAR.decoder, 3e-3)
    told = [learner.learn(toys.PROMPT, 0, [5, 12], p, loss) for _ in range(20)]
    q = [
        torch.stack([logits_of(x, toys.PROMPT[: row + 1]) for row in (5, 12)]).softmax(-1)
        for x in (FAR.decoder, learner)
    ]
    assert told[-1] < told[0] and (q[1] - p).abs().sum() < (q[0] - p).abs().sum()


def test_an_update_without_a_finite_gradient_is_none() -> None:
    learner = Learner(FAR.decoder, 1e-3)
    assert learner.learn(toys.PROMPT, 0, [5], torch.full((1, 13), torch.nan, dtype=torch.float64)) is None
    assert learner.updates == 0
    assert torch.equal(logits_of(learner, toys.PROMPT), logits_of(FAR.decoder, toys.PROMPT))


def test_half_types_learn_in_float32_and_tied_heads_stay_tied() -> None:
    tied = Decoder(
        FAR.decoder.spec, FAR.decoder.embed, FAR.decoder.layers, FAR.decoder.norm, FAR.decoder.embed
    )
    small = tied.to(torch.bfloat16).pack_weights()
    learner = Learner(small, 1e-5)
    before = small.embed.clone()
    p = torch.full((1, 13), 1 / 13)
    for _ in range(60):
        learner.learn(toys.PROMPT, 0, [5], p)
    assert learner.dtype == torch.bfloat16 and learner.head is learner.embed
    assert learner.layers[0].qkv.is_mkldnn == small.layers[0].qkv.is_mkldnn and len(learner.norm) == len(
        small.norm
    )
    moved = (learner.embed.float() - before.float()).abs().max()
    assert 0 < moved < 60e-5 * 4, "steps too small for the type add up in the master"
    assert torch.equal(small.embed, before)


# ---- which model it changes


def test_shipped_weights_are_never_written_and_every_session_begins_with_them() -> None:
    before = [x.clone() for x in weights(FAR.decoder)]
    first, second = (
        session(dict(max_draft_tokens=4, update_interval=2, learning_rate=0.01)) for _ in range(2)
    )
    assert notes(first)[-1]["updates"] > 5
    assert all(torch.equal(a, b) for a, b in zip(before, weights(FAR.decoder), strict=True))
    assert first.end.content_hash == second.end.content_hash, "the second learned from the same beginning"
    assert first.lanes["draft"].decoder is not second.lanes["draft"].decoder
    assert not any(
        torch.equal(a, b) for a, b in zip(before[:1], weights(first.lanes["draft"].decoder)[:1], strict=True)
    )
    plain = toys.decode(
        toys.method(drafter=("draft_model", {"max_draft_tokens": 4})), pair=(toys.pair()[0], FAR)
    )
    assert torch.equal(plain.lanes["draft"].decoder.embed, before[0])


def test_nothing_is_copied_before_the_first_update() -> None:
    made = session(dict(max_draft_tokens=4, update_interval=200))
    learner = made.lanes["draft"].decoder
    assert (learner.updates, learner.bytes) == (0, 0) and learner.embed is FAR.decoder.embed
    assert {x["bytes"] for x in notes(made)} == {0}
    taught = session(dict(max_draft_tokens=4, update_interval=2))
    assert notes(taught)[-1]["bytes"] == FAR.spec.params * 8 * 5, (
        "weights, master, gradient and two averages, in float64"
    )


def test_a_branch_learns_for_itself() -> None:
    target = toys.pair()[0]
    method = toys.method(drafter=("online", dict(max_draft_tokens=4, update_interval=2, learning_rate=0.01)))
    made = Session(target, method, toys.PROMPT, models={"draft": FAR}, max_new_tokens=80)
    for _ in range(12):
        made.step()
    updates = made.lanes["draft"].decoder.updates
    assert updates > 2
    branch, other = made.branch(), made.branch()
    held = [x.clone() for x in weights(other.lanes["draft"].decoder)]
    drafts = []
    for run in (made, branch):
        steps = [run.step() for _ in range(12)]
        drafts.append([(x.emitted, x.draft.tokens, x.draft.notes["online"]["loss"]) for x in steps])
        assert run.lanes["draft"].decoder.updates > updates
    assert drafts[0] == drafts[1], "the same past has the same future"
    assert all(torch.equal(a, b) for a, b in zip(held, weights(other.lanes["draft"].decoder), strict=True))


# ---- the distribution


def test_the_law_is_the_targets_while_the_draft_model_learns() -> None:
    """All paths of whole runs over two ids, with an update after every refusal."""
    spec = toys.toy_spec(vocab=2, heads=())
    target, small = (
        toys.decoder(spec, 4, torch.float64, sharp=2.0),
        toys.decoder(spec, 5, torch.float64, sharp=2.0),
    )
    learned: set[int] = set()

    class Watched(Walk):
        def _step(self, chance):
            move = super()._step(chance)
            learned.add(self.s.lanes["draft"].decoder.updates)
            return move

    method = Method(
        drafter=build("drafter", "online", dict(max_draft_tokens=2, update_interval=1, learning_rate=0.03)),
        sampler=build("sampler", "temperature"),
    )
    prompt = [1, 0, 0, 1]
    walk = Watched(method, {"target": toys.model(target), "draft": toys.model(small)}, 3, prompt=prompt)
    law = walk.full_run_distribution()
    assert max(learned) >= 2 and walk.kept and walk.refused, "the test needs updates between drafts"
    assert (
        distribution_distance(law, text_distribution(logits_by_prefix(target), Warp(), prompt, 3, 2)) <= 1e-12
    )


def test_the_recorded_q_is_of_the_weights_that_drew() -> None:
    """The draft records the learner's distribution at that time; after the update it would be another one."""
    method = toys.method(
        drafter=("online", dict(max_draft_tokens=3, update_interval=1, learning_rate=0.03)),
        sampler="temperature",
    )
    made = Session(toys.pair()[0], method, toys.PROMPT, models={"draft": FAR}, max_new_tokens=60, seed=2)
    made.start()
    updated = 0
    for _ in range(10):
        text, learner = list(made.tokens), made.lanes["draft"].decoder
        due, count = logits_of(learner, text).softmax(-1), learner.updates
        step = made.step()
        q = step.draft.q[0]
        assert q == pytest.approx(float(due[step.draft.tokens[0]]), abs=1e-9)
        if learner.updates > count:
            later = logits_of(learner, text).softmax(-1)
            updated += abs(float(later[step.draft.tokens[0]]) - q) > 1e-6
    assert updated > 3, "the test needs updates that change the law"


# ---- the buffer and the trace


def test_buffer_updates_and_notes_keep_their_books() -> None:
    made = session(dict(max_draft_tokens=4, update_interval=3, replay_size=2, learning_rate=1e-3), count=60)
    refused = updates = 0
    hits = judged = 0.0
    for step in made.sink.steps:
        if step.draft is None:
            continue
        said = step.draft.notes["online"]
        assert said["updates"] == updates == refused // 3
        assert said["buffer"] == refused % 3 + (2 if updates else 0)
        assert (said["loss"] is None) == (updates == 0) == (said["bytes"] == 0)
        assert said["accepted"] == (pytest.approx(hits / judged, abs=1e-4) if judged else None)
        if step.extra is None:
            continue
        missed = step.accepted < step.drafted
        for hit in [1.0] * step.accepted + [0.0] * missed:
            hits, judged = 0.95 * hits + hit, 0.95 * judged + 1
        refused += missed
        updates = refused // 3
    assert updates > 3
    read = [
        x
        for step in made.sink.steps
        for x in step.passes
        if x.phase == "catch_up" and x.lane == "draft" and x.held == 0
    ]
    assert len(read) == updates, "after an update the draft model reads the text again"


def test_what_is_learned_from_lies_in_the_window() -> None:
    made = session(dict(max_draft_tokens=4, update_interval=200, window=8))
    drafter, learner = made.drafter, made.lanes["draft"].decoder
    places = [at for at, _ in drafter._places]
    seen: list = []
    learner.learn = lambda *told: seen.append(told)  # type: ignore[method-assign]
    with torch.inference_mode():
        drafter._update()
    tokens, start, rows, p, loss = seen[0]
    last = places[-1]
    assert start == last - 8 and tokens == made.tokens[start:last] and loss == "forward"
    kept = [at for at in places if at > start]
    assert [start + row + 1 for row in rows] == kept and 1 < len(kept) < len(places) and len(p) == len(kept)
    due = logits_of(toys.pair()[0].decoder, made.tokens[:last]).softmax(-1)
    assert torch.allclose(p[-1], due, atol=1e-9), "the law that refused"


def test_a_schedule_still_says_how_long_drafts_are() -> None:
    parts = toys.method(
        drafter=("online", dict(update_interval=2)), schedule=("confidence", dict(threshold=0.6))
    )
    made = toys.decode(parts, pair=(toys.pair()[0], FAR))
    assert all({"schedule", "online"} <= step.draft.notes.keys() for step in made.sink.steps if step.draft)
    assert len({step.drafted for step in made.sink.steps}) > 1


# ---- models that cannot learn


def test_models_that_cannot_learn_here_are_refused_in_one_sentence() -> None:
    large = replace(FAR.decoder.spec, vocab=MOST_BYTES // 100)
    capped = replace(FAR.decoder.spec, attn_cap=50.0)
    for spec, reason, said in (
        (
            large,
            "out_of_memory",
            r"Learning toy \([\d,]+ parameters\) would take [\d,]+ MiB in addition; 2,048 are the limit: choose",
        ),
        (
            capped,
            "bad_input",
            r"toy caps its attention scores, .*: choose another draft model, or the drafter draft_model\.$",
        ),
    ):
        small = toys.noisy_decoder(FAR.decoder, 0.0)
        small.spec = spec
        model = toys.model(small)
        model.spec = FAR.spec
        with pytest.raises(EngineFault, match=said) as refusal:
            Session(
                toys.pair()[0], toys.method(drafter="online"), toys.PROMPT, models={"draft": model}
            ).start()
        assert refusal.value.reason == reason
