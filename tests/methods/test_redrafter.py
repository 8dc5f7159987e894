"""ReDrafter: a beam search with a recurrent net whose beams become one tree, and why its tokens count as chosen, not drawn."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import toys
from drafting import drafts, feature_of
from law.verdicts import rows

from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.model.heads.drafting.redrafter import ReDrafterNet
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance, exact_distribution
from decodescope.testing.chances import outcomes

V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))


@torch.inference_mode()
def beams_of(text: list[int], width: int, length: int, top: int) -> dict[tuple[int, ...], float]:
    """Beam -> score, best first, by a search that reads every beam from its first token, with the net's formula."""
    decoder = toys.pair()[0].decoder
    net, h = decoder.heads["redrafter"], feature_of(text[:-1])[-1]
    found: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(length):
        grown = {}
        for beam, score in found.items():
            s = torch.zeros(16, dtype=torch.float64)
            for token in (text[-1], *beam):
                e = decoder.embed[token]
                s = F.silu(
                    net.told.weight @ (e / (e.square().mean() + 1e-5).sqrt())
                    + net.kept.weight @ s
                    + net.kept.bias
                )
            y = net.enter.weight @ torch.cat([h, s]) + net.enter.bias
            for block in net.blocks:
                y = y + F.silu(block.weight @ y + block.bias)
            logits = decoder.unembed(h + net.out.weight @ y)
            likely = logits.argsort(descending=True)[:top]
            logs = logits[likely].log_softmax(0)
            grown |= {(*beam, int(x)): score + float(log) for x, log in zip(likely, logs, strict=True)}
        found = dict(sorted(grown.items(), key=lambda x: -x[1])[:width])
    return found


@pytest.mark.parametrize(
    ("width", "length", "top"), [(4, 3, 50), (10, 3, 50), (6, 2, 2), (1, 5, 50), (40, 2, 3)]
)
def test_draft_holds_the_beams_of_a_search_that_reads_each_anew(width: int, length: int, top: int) -> None:
    shared = 0
    for text, draft, _ in drafts("redrafter", dict(width=width, depth=length, top_k=top), steps=5):
        due = beams_of(text, width, length, top)
        assert draft.notes["scores"] == pytest.approx(list(due.values()), abs=1e-4)
        for beam, nodes in zip(due, draft.notes["nodes"], strict=True):
            assert [draft.tokens[node] for node in nodes] == list(beam)
            assert [draft.parents[node] for node in nodes] == [ROOT, *nodes[:-1]]
        assert len(draft) == len({beam[:n] for beam in due for n in range(1, length + 1)}), (
            "what beams share stands once"
        )
        assert draft.notes["merged"] == len(due) * length - len(draft) and draft.kind == "onehot"
        shared += draft.notes["merged"]
    assert shared > 3 or width == 1 or length == 1, "the test needs beams that begin alike"


def test_state_and_feature_worked_by_hand() -> None:
    """d = 2, one unit, one block. The embedding (0, 5) becomes (0, sqrt(2)).

    With W = (0, 1), U = 3, b = 0: s_0 = silu(sqrt(2)), s_1 = silu(sqrt(2) + 3 s_0). With y = s, then y + silu(2 y), and O = (1,
    -1): h + (y, -y).
    """
    head = ReDrafterNet(2, heads=2, inner=1, blocks=1)
    with torch.no_grad():
        head.told.weight.copy_(torch.tensor([[0.0, 1.0]]))
        head.kept.weight.fill_(3.0)
        head.enter.weight.copy_(torch.tensor([[0.0, 0.0, 1.0]]))
        head.blocks[0].weight.fill_(2.0)
        head.out.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        for bias in (head.kept.bias, head.enter.bias, head.blocks[0].bias):
            bias.zero_()
        made = head(torch.tensor([10.0, 20.0]), torch.tensor([[0.0, 5.0], [0.0, 5.0]]))
    silu = lambda x: float(F.silu(torch.tensor(x)))  # noqa: E731
    states = [s := silu(2**0.5), silu(2**0.5 + 3 * s)]
    y = [x + silu(2 * x) for x in states]
    assert made.tolist() == [pytest.approx([10 + x, 20 - x], abs=1e-4) for x in y]


def test_untrained_net_says_what_the_target_says_of_the_next_token() -> None:
    h = torch.randn(5, 32)
    assert torch.equal(
        ReDrafterNet(32, heads=3, inner=8, blocks=2)(h, torch.randn(5, 3, 32)), h.expand(3, 5, 32)
    )


def test_blocks_have_weights_of_their_own() -> None:
    net = ReDrafterNet(32, heads=3, inner=8, blocks=3)
    assert len({block.weight.data_ptr() for block in net.blocks}) == 3


def test_it_drafts_nothing_before_the_target_has_read_anything() -> None:
    made = [len(draft) for _, draft, _ in drafts("redrafter", dict(width=1, depth=3), 2, prompt=[4])]
    assert made == [0, 3]


@pytest.mark.parametrize("settings", [dict(width=4, depth=2), dict(width=2, depth=3), dict(width=1, depth=2)])
def test_law_is_the_targets_by_counting_every_outcome(settings: dict) -> None:
    knobs = {"temperature": {"temperature": 1.0}, "top_k": {"k": 3}}
    names = {"sampler": ["temperature", "top_k"]}
    alone = toys.Method.from_names(names, knobs)
    drafted = toys.Method.from_names({**names, "drafter": "redrafter"}, {**knobs, "drafter": settings})
    found, due = (
        exact_distribution(V5, drafted, [1, 2, 1, 3], 3),
        exact_distribution(V5, alone, [1, 2, 1, 3], 3),
    )
    assert len(due) >= 8 and found == pytest.approx(due, abs=1e-12)


def test_the_authors_rule_favours_what_the_net_likes_and_ours_does_not() -> None:
    """Two beams of one token, the two likeliest of q.

    In the authors' rule each is kept with min(1, p / q), and the first kept one is taken. If none is kept, the token comes from
    max(p - q, 0). So token 0, of probability 0.4, is written in 80 of 100 cases.
    """
    p, q = rows([0.4, 0.3, 0.2, 0.05, 0.05], [0.5, 0.3, 0.1, 0.05, 0.05])
    stays = (p / q).clamp(max=1)
    theirs = torch.zeros(5, dtype=torch.float64)
    theirs[0], theirs[1] = stays[0], (1 - stays[0]) * stays[1]
    theirs += (1 - stays[0]) * (1 - stays[1]) * (p - q).clamp(min=0) / (p - q).clamp(min=0).sum()
    assert float(theirs.sum()) == pytest.approx(1) and float(theirs[0]) == pytest.approx(0.8)
    assert float((theirs - p).abs().sum()) / 2 == pytest.approx(0.4)

    def step(chance: EnumeratedChance) -> int:
        draft = Draft([0, 1], [ROOT, ROOT])
        at = Cursor(draft, p.log().expand(3, 5), [0, 0, 0], Temperature(temperature=1.0), None, 0)
        verdict = Lossless().verify(draft, at, chance)
        return draft.tokens[verdict.path[0]] if verdict.path else verdict.token

    ours = torch.zeros(5, dtype=torch.float64)
    for weight, token in outcomes(step):
        ours[token] += weight
    assert torch.allclose(ours, p, atol=1e-12)
