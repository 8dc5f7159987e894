"""Entries without tokens: every row reads them together with the text's entries, and nothing else sees them."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.attention.extra_kv import ExtraEmbeds
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]


def lane(vectors: list[ExtraEmbeds], policy: str = "keep_all", **knobs: int) -> Lane:
    """A lane of the toy that also reads these vectors."""
    method = Method.from_names({"policy": policy}, {"policy": knobs})
    made = Lane("target", toys.decoder(dtype=torch.float64), method.policy, needs=method.needs)
    made.vectors = vectors
    return made


def embedded(ids: list[int]) -> torch.Tensor:
    """float64 [S, d]: the embeddings of these tokens."""
    return toys.decoder(dtype=torch.float64).embed[ids]


@pytest.mark.parametrize("at", [0, 4, 14])
def test_vectors_that_are_embeddings_read_as_the_tokens_would(at: int) -> None:
    inserted = [7, 2, 11]
    mine = lane(
        [ExtraEmbeds(embedded(inserted[:1]), "soft", at), ExtraEmbeds(embedded(inserted[1:]), "latent", at)]
    )
    logits = mine.read(TEXT)
    plain = lane([]).read([*TEXT[:at], *inserted, *TEXT[at:]])
    assert torch.allclose(logits, plain, atol=1e-10)
    assert mine.tokens == TEXT and mine.cache.length == len(TEXT) and mine.cache.lengths() == len(TEXT)
    assert [x.kind for x in mine.cache.outside] == ["soft", "latent"] and mine.cache.extra_entries == 3
    assert mine.cache.layers[0].positions()[0, 0].tolist() == list(range(len(TEXT)))
    bytes_ = 2 * 2 * 8 * 8  # keys and values of two heads of eight float64
    assert mine.cache.nbytes - lane_bytes(TEXT) == 3 * 3 * bytes_, (
        "three entries in three layers, as their storages say"
    )


def lane_bytes(text: list[int]) -> int:
    """Bytes of a cache that has read only the text."""
    made = lane([])
    made.read(text)
    return made.cache.nbytes


@pytest.mark.parametrize("length", [3, 9])
def test_going_back_forgets_what_stood_further_on(length: int) -> None:
    vectors = [ExtraEmbeds(embedded([7]), "soft"), ExtraEmbeds(embedded([2]), "latent", 6)]
    mine = lane(vectors)
    mine.read(TEXT)
    mine.truncate(length)
    assert mine.cache.extra_entries == 1 + (length >= 6)
    text = [*TEXT[:length], *reversed(TEXT)]
    assert torch.allclose(mine.read(text), lane(vectors).read(text), atol=1e-10)


@pytest.mark.parametrize(
    ("policy", "knobs"),
    [
        ("window", {"window": 6}),
        ("streaming_llm", {"sink_tokens": 2, "recent": 4}),
        ("h2o", {"heavy": 3, "recent": 3}),
    ],
)
def test_a_policy_hears_of_the_text_alone(policy: str, knobs: dict[str, int]) -> None:
    """The vectors do not change how many entries a policy holds, nor (except for H2O) which ones."""
    far = ExtraEmbeds(embedded([7, 7]), "soft")
    mine, plain = lane([far], policy, **knobs), lane([], policy, **knobs)
    answers = [x.read(TEXT) for x in (mine, plain)]
    for a, b in zip(mine.cache.layers, plain.cache.layers, strict=True):
        assert a.lengths == b.lengths and a.n <= 6
        assert policy == "h2o" or torch.equal(a.positions(), b.positions())
    assert mine.cache.extra_entries == 2 and not torch.allclose(*answers, atol=1e-3), "they are attended to"


@pytest.mark.parametrize(
    "policy",
    [("streaming_llm", {"sink_tokens": 2, "recent": 4}), ("lm_infinite", {"sink_tokens": 2, "window": 5})],
)
def test_a_prompt_reads_them_as_token_by_token(policy: tuple[str, dict[str, int]]) -> None:
    """This also holds where distances are counted in the cache, or capped: near and far rows are in one pass."""
    name, knobs = policy
    mine, slow = (lane([ExtraEmbeds(embedded([7, 2]), "soft")], name, **knobs) for _ in range(2))
    for count in range(1, len(TEXT)):
        slow.read(TEXT[:count])
    assert torch.allclose(mine.read(TEXT), slow.read(TEXT), atol=1e-10)


def test_sinks_of_a_cache_stand_right_behind_them() -> None:
    """StreamingLLM with two sinks, over a text with two vectors before it, equals StreamingLLM with four sinks.

    The latter reads the text after two tokens with the embeddings of these vectors.
    """
    ids = [7, 2]
    knobs = {"sink_tokens": 2, "recent": 4}
    mine = lane([ExtraEmbeds(embedded(ids), "soft")], "streaming_llm", **knobs)
    plain = lane([], "streaming_llm", **{**knobs, "sink_tokens": 4})
    rows = []
    for made, text in ((mine, TEXT), (plain, ids + TEXT)):
        made.read(text)
        rows.append(made.read([*text, 6, 1, 8]))
    assert torch.allclose(*rows, atol=1e-10)


@pytest.mark.parametrize("context", ["compress_then_prompt", "ntk_attention"])
@pytest.mark.parametrize(
    "extra",
    [{}, {"policy": "h2o"}, {"kv_compression": "kivi"}, {"strategy": "samples"}, {"strategy": "beam"}],
)
def test_a_run_is_told_whole_and_forks_go_on_as_it_did(context: str, extra: dict[str, str]) -> None:
    parts = {kind: (name, toys.SETTINGS[name][0]) for kind, name in extra.items()}
    run = toys.decode(toys.method(prompt_compression=context, **parts), count=12)
    trace = run.sink
    assert run.end.reason == "max_new_tokens", run.end.message
    report = check(trace)
    assert report.ok, str(report)
    told = trace.prefill.cache[0].augmented
    assert [x.form for x in told] == (["soft"] if context == "compress_then_prompt" else ["state"])
    assert trace.prefill.n == len(toys.PROMPT) - 1 == trace.prefill.cache[0].appended
    assert all(
        (x.aside or 0) == told[0].entries for step in trace.steps for x in step.passes if x.lane == "target"
    )
    trace.steps[1].passes[-1].aside = 99
    assert not check(trace).ok
    trace.steps[1].passes[-1].aside = told[0].entries or None
    big, small = toys.pair()
    other = Fork(big, trace.header, trace.steps, 3, models={**toys.helper_models(), "draft": small}, seed=5)
    for _ in other.stream():
        pass
    assert other.end.reason == "max_new_tokens", other.end.message
    if not extra:
        fresh = toys.method(prompt_compression=context, policy=("window", {"window": 99}))
        again = Fork(
            big, trace.header, trace.steps, 3, models={**toys.helper_models(), "draft": small}, method=fresh
        )
        for _ in again.stream():
            pass
        assert again.end.tokens == run.end.tokens, "a window that holds all is the run"


def test_the_context_is_shorter_by_what_stands_beside_the_text() -> None:
    big, _ = toys.pair()
    most = big.spec.max_positions
    run = toys.Session(
        big, toys.method(prompt_compression="compress_then_prompt"), [1] * (most - 5), max_new_tokens=9
    )
    assert run.remaining_tokens == 2, "three soft tokens take three of the five places"
    parts = dict(
        prompt_compression="compress_then_prompt", policy=("lm_infinite", {"sink_tokens": 2, "window": 2})
    )
    with pytest.raises(
        MethodError, match=r"puts 3 entries before .* further away than 3: choose a window of at least 3"
    ):
        toys.Session(big, toys.method(**parts), [1] * 9)


def test_a_fork_of_one_token_reads_them_before_it() -> None:
    """Then no part of the prompt is read before its first commit. Neither residual is ever full, so both read whole numbers."""
    parts = [
        dict(prompt_compression="compress_then_prompt", kv_compression=("kivi", dict(group=4, buffer=x)))
        for x in (32, 64)
    ]
    run = toys.decode(toys.method(**parts[0]), [4], count=12)
    fork = Fork(toys.pair()[0], run.header, run.sink.steps, 6, method=toys.method(**parts[1]))
    while fork.steps < 8:
        fork.step()
    mine, theirs = (x.target.cache.layers[-1].k for x in (fork, run))
    assert torch.allclose(mine, theirs[:, :, : mine.shape[2]], atol=1e-5)


def test_a_branch_agrees_with_itself_though_it_does_not_say_again_what_stands_beside_the_text() -> None:
    run = toys.Session(
        toys.pair()[0], toys.method(prompt_compression="compress_then_prompt"), toys.PROMPT, max_new_tokens=5
    )
    run.step()
    other = run.branch()
    other.sink = Trace()
    steps = [*other.stream()]
    assert steps[-1].passes[-1].aside == 3 and check(other.sink).ok, str(check(other.sink))
