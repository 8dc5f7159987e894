"""Every part of a method works with every family: drafts, policies, exits and probes do not depend on the family."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch
import toys
from sizes import sizes

from decodescope.engine.core.component import KINDS, build
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder, Layer
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.load import load
from decodescope.engine.session.method import MethodError
from decodescope.engine.trace import check

TEXT = torch.randint(0, 64, (40,), generator=torch.Generator().manual_seed(2)).tolist()
SIZES = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    initializer_range=0.3,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
    tie_word_embeddings=False,
)
HALF = ["sliding_attention", "full_attention"] * 2
FAMILIES = {
    "Llama": dict(attention_bias=True, mlp_bias=True),
    "SmolLM3": dict(no_rope_layers=[1, 0, 1, 1], use_sliding_window=True, sliding_window=9, layer_types=HALF),
    "Mistral": dict(sliding_window=9),
    "Qwen2": dict(use_sliding_window=True, sliding_window=9, layer_types=HALF),
    "Qwen3": {},
    "Phi3": dict(partial_rotary_factor=0.5, sliding_window=9),
    "Gemma2": dict(
        sliding_window=9, attn_logit_softcapping=4.0, final_logit_softcapping=6.0, query_pre_attn_scalar=6
    ),
    "Gemma3Text": dict(sliding_window=9, layer_types=HALF, final_logit_softcapping=6.0),
}
PARTS = [(kind, part) for kind in KINDS for part in toys.representatives(kind)]
ALWAYS = ("draft_model", "layer_skip", "jacobi", "keep_all")


@dataclass
class Two:
    """A target and a draft model that is often right, in float64; turn: the index of its family in FAMILIES."""

    target: toys.Model
    draft: toys.Model
    turn: int

    @property
    def decoder(self) -> Decoder:
        return self.target.decoder

    @property
    def spec(self) -> ModelSpec:
        return self.target.spec

    def lane(self, policy: str = "keep_all", **settings: int) -> Lane:
        made = Lane("target", self.decoder, build("policy", policy, settings))
        made.policy.begin(self.spec, 1)
        return made


def blurred(base: Decoder) -> Decoder:
    """The same decoder with some noise added to its matrices."""
    g = torch.Generator().manual_seed(4)

    def blur(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(x.shape, generator=g, dtype=x.dtype) * 0.05 * x.abs().mean()

    layers = [
        Layer(
            **{
                f.name: blur(unpack(x)) if x.dim() == 2 else x
                for f in fields(w)
                if (x := getattr(w, f.name)) is not None
            }
        )
        for w in base.layers
    ]
    return Decoder(base.spec, base.embed, layers, base.norm, base.head)


@pytest.fixture(scope="module", params=FAMILIES)
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Two:
    """One family's random checkpoint, loaded from a file, with a draft model."""
    import transformers

    torch.manual_seed(5)
    config = getattr(transformers, f"{request.param}Config")(**SIZES, **FAMILIES[request.param])
    theirs = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weight.add_(torch.randn_like(weight) * 0.2)
    folder: Path = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    made = load(folder, dtype="float64", device="cpu")
    return Two(made, toys.model(blurred(made.decoder)), list(FAMILIES).index(request.param))


@sizes("every", usual=24, full=1)
def test_lossless_methods_give_the_plain_text_and_every_trace_agrees_with_itself(
    two: Two, every: int
) -> None:
    """Every part with every family; in the usual run each family sees one part in 24, in turns, and those of ALWAYS."""
    prompt, plain = TEXT[:12], toys.greedy_text(two.decoder, TEXT[:12], 24)
    assert len(set(plain)) > 5, "the guard: a text that repeats itself proves little"
    told, accepted = [], 0
    for turn, (kind, part) in enumerate(PARTS):
        if (turn - two.turn) % every and part[0] not in ALWAYS:
            continue
        try:
            session = toys.decode(toys.method(**{kind: part}), prompt, 24, pair=(two.target, two.draft))
        except MethodError:
            continue  # a part that needs another one; tests/contracts has its sentence
        report = check(session.sink)
        assert report.ok, f"{part}: {report}"
        accepted += sum(step.accepted or 0 for step in session.sink.steps)
        if session.method.lossless and session.sampler.greedy and part[0] != "beam":
            told.append(part[0])
            assert session.end.tokens == plain, part
    assert set(ALWAYS) <= set(told)
    assert accepted > 10, "the guard: something must have been drafted and accepted"


def test_a_policy_that_drops_entries_equals_an_explicit_mask(two: Two) -> None:
    """The window policy keeps six entries; the reference reads the whole text at once, and each row sees only those."""
    lane, rows = two.lane("window", window=6), []
    for at, token in enumerate(TEXT):
        rows.append(lane.forward(Feed.causal_chain([token], at))[0])
        lane.commit([0])
    ago = torch.arange(len(TEXT))[:, None] - torch.arange(len(TEXT))
    feed = Feed.causal_chain(TEXT, 0)
    feed.visible = ((ago >= 0) & (ago <= 6))[None]
    made = two.decoder.forward(feed, None)[0]
    torch.testing.assert_close(torch.cat(rows), made, atol=1e-9, rtol=0)
    assert (made - two.decoder.forward(Feed.causal_chain(TEXT, 0), None)[0]).abs().max() > 0.01, (
        "the guard: dropping matters"
    )


def test_sinks_stand_where_they_stood_while_nothing_has_left(two: Two) -> None:
    plain, sunk = two.lane(), two.lane("streaming_llm", sink_tokens=4, recent=60)
    assert torch.equal(sunk.read(TEXT[:20]), plain.read(TEXT[:20]))
    for at, token in enumerate(TEXT[20:], 20):
        a, b = (x.forward(Feed.causal_chain([token], at)) for x in (sunk, plain))
        assert torch.equal(a, b)
        sunk.commit([0])
        plain.commit([0])


@torch.inference_mode()
def test_a_probe_sees_the_attention_and_changes_nothing(two: Two) -> None:
    """Rows sum to one and stay inside the layer's window; a prefill's columns are the sums of its rows; logits stay."""
    layers = tuple(range(two.spec.n_layers))
    rows, columns = Probe(Needs(attention="rows")), Probe(Needs(attention="columns"))
    feed = Feed.causal_chain(TEXT, 0)
    plain = two.decoder.forward(feed, None)
    torch.testing.assert_close(two.decoder.forward(feed, None, rows), plain, atol=1e-10, rtol=0)
    last = Feed.causal_chain(TEXT, 0, logits="last")
    torch.testing.assert_close(
        two.decoder.forward(last, KVCache(two.spec, dtype=torch.float64), columns), plain[:, -1:]
    )
    ago = torch.arange(len(TEXT))[:, None] - torch.arange(len(TEXT))
    for i in layers:
        seen = rows.rows[i]  # [1, H_kv, g, T, S]
        torch.testing.assert_close(seen.sum(-1), torch.ones_like(seen[..., 0]))
        reach = (ago >= 0) & (ago < (two.spec.window(i) or len(TEXT)))
        assert seen[..., ~reach].abs().max() == 0
        assert seen[..., reach].min() > 0
        torch.testing.assert_close(columns.columns[i], seen.sum((2, 3)))


@torch.inference_mode()
def test_the_same_model_in_another_type_and_packed(two: Two) -> None:
    """Casting a decoder, packing it for the processor, or both keeps every field of a layer."""
    plain = two.decoder.forward(Feed.causal_chain(TEXT, 0), None)
    cast = two.decoder.to(dtype=torch.float32)
    for made in (cast, cast.pack_weights(), cast.pack_weights().to(dtype=torch.float64)):
        torch.testing.assert_close(
            made.forward(Feed.causal_chain(TEXT, 0), None).double(), plain, atol=1e-3, rtol=1e-3
        )
    half = two.decoder.to(dtype=torch.bfloat16).pack_weights().forward(Feed.causal_chain(TEXT, 0), None)
    assert half.dtype == torch.float32
    assert (half - plain).abs().mean() < 0.2 * plain.abs().mean()
