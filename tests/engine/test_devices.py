"""Mistakes with devices, found without one: by reading the source, and by steps on an imitated device (pretended.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import toys
from creations import homeless, leaving, read
from pretended import ENGINE, PLACE, Pretended, pretended
from sizes import by_turns

from decodescope.engine import Session
from decodescope.engine.core.component import KINDS
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.drafters.lookup.token_recycling import TokenRecycling
from decodescope.engine.methods.policies.h2o import H2O
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.drafting.medusa import MedusaHeads
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace

# Functions that make tensors on the CPU, by the reason why that is right.
HERE = {
    "a mask that is made bit by bit, and moved as a whole": (
        "decoding/shared/branches.py:TextBranches._rows_of_texts",
        "decoding/values/draft.py:Slots.visibility_mask",
        "decoding/values/draft.py:unpack_bit_rows",
        "model/stores/tree.py:CacheTree._cut_groups",
    ),
    "numbers that only the CPU works with: prices, plans, bounds, subsets of layers": (
        "methods/drafters/own_layers/swift.py:Swift.begin",
        "methods/drafters/own_layers/swift.py:Swift._candidate",
        "methods/drafters/shared/subsets.py:propose_subset",
        "methods/drafters/shared/trees.py:SequoiaTable.__init__",
        "methods/policies/duo_attention.py:DuoAttention.begin",
        "methods/schedules/confidence.py:best_threshold",
        "methods/adaptive_depth/hash_exit.py:HashExit.begin",
        "methods/strategies/joint_tokens.py:JointTokens.choose",
        "methods/weights/shared/block_times.py:choose_within_budget",
        "methods/weights/shared/gate_sizes.py:GateSizes.__init__",
    ),
    "tables over hidden states and an automaton: made in float64, and the weights of one text are moved as a whole": (
        "decoding/shared/hidden_markov.py:_decode_logs",
        "decoding/shared/hidden_markov.py:CompletionWeights.log_weights",
        "decoding/shared/hidden_markov.py:build_completion_weights",
        "decoding/shared/hidden_markov.py:_edges",
        "methods/samplers/deco_g.py:_FormatState.log_weights",
    ),
    "the chance of the keys is the CPU's, so that a seed says the same everywhere": (
        "methods/kv_compression/gear.py:factor_low_rank",
        "methods/weights/shared/gating.py:gumbel_noise",
        "methods/weights/head_gates.py:HeadGates.train_gates.objective",
        "methods/weights/pv_tuning.py:PVTuning.tune",
        "methods/weights/width_gates.py:WidthGates.train_gates.objective",
    ),
    "gates are few: they are found on the CPU, and `gated` moves them": (
        "decoding/values/transform_result.py:TransformResult.gates",
        "methods/weights/cut_layers.py:block_gates",
        "methods/weights/evopress.py:EvoPress.gates",
        "methods/weights/head_gates.py:HeadGates.train_gates",
        "methods/weights/head_sensitivity.py:HeadSensitivity.rank_heads",
        "methods/weights/head_sensitivity.py:closing_gates",
        "methods/weights/head_subset.py:HeadSubset.train_weights",
        "methods/weights/head_subset.py:scatter_gates",
        "methods/weights/latency_fit.py:cut_structures",
        "model/forward/slicing.py:_LayerCut.__init__",
        "methods/weights/shared/gating.py:probability_open",
        "methods/weights/shared/block_times.py:measure_times.us",
        "methods/weights/width_gates.py:WidthGates.train_gates",
    ),
    "an index, which a device takes from the CPU": (
        "methods/guidance/shared/states.py:_read_states",
        "methods/unmasking/learn2pd.py:Learn2PD.select",
        "model/forward/slicing.py:_LayerCut.layer",
        "methods/strategies/shared/sample_batch.py:SampleBatch.start",
        "model/heads/drafting/slot_tokens.py:SlotTokens.rows",
    ),
    "made in double precision where every machine makes the same, and moved by who asked": (
        "model/layers/rope.py:rope_frequencies",
        "model/layers/rope.py:RopeTable._build",
        "methods/prompt_compression/specpc.py:SpecPC._read_attention",
        "decoding/shared/recogniser.py:Recogniser.mask",
    ),
    "what a trace takes, or took, is the CPU's": (
        "decoding/record/recorder.py:Recorder._capture",
        "decoding/values/reference_cache.py:ReferenceCache.__init__",
        "decoding/values/reference_cache.py:ReferenceCache._lost_mass",
        "session/replay/forcing.py:_trial",
        "session/replay/recall.py:Recall.draft",
        "session/replay/recall.py:Recall.cursor",
        "session/replay/recall.py:Recall.target_distribution",
        "session/replay/recall.py:Recall._draft_distribution",
    ),
    "a file is read here, and what it holds moved": (
        "model/heads/published/eagle3.py:read_draft_tensors",
        "model/heads/published/eagle3.py:_draft_ids",
        "model/heads/published/hydra.py:convert_hydra",
        "model/checkpoint/gguf/tensors.py:GgufTensors.matrix",
        "model/checkpoint/weights.py:read_adapter",
        "model/layers/gguf_matrix.py:unpack_rows",
        "saved/file.py:_build_saved_cache",
    ),
    "the ids of a text, which who reads it moves": (
        "bench/models.py:ModelsBench.compare_distributions",
        "session/load.py:calibration",
    ),
    "a product of the CPU's own, which no other device reaches": ("model/layers/compressed_matrices.py:Int4Matrix.numbers",),
}  # fmt: skip

# Functions of the pass that wait for the device, by the reason why they may.
WAITING = {
    "once for every pass: whether its logits are numbers": (
        "model/layers/faults.py:row_maxima",
        "model/layers/faults.py:not_finite_reason",
    ),
    "once for every exit and draft head that is asked: the same": ("model/layers/faults.py:require_finite",),
    "rows of a pass that leave between layers, which the record names": (
        "model/forward/conditional.py:ConditionalPass._attention_of",
        "model/layers/partial_pass.py:ExecutedLayers.enter_rows",
        "model/layers/row_routing.py:choose_rows",
        "model/layers/row_routing.py:complement_rows",
    ),
    "heads that hold different numbers of entries": (
        "model/attention/per_head.py:HeadStore.__init__",
        "model/attention/per_head.py:HeadStore.keep",
        "model/attention/per_head.py:HeadStore.reorder",
        "model/attention/per_head.py:HeadStore.write",
        "model/stores/store.py:LayerStore.keep_where",
    ),
    "which entries the layers read, for the record": ("model/stores/sparse_read.py:SparseRead.read_entries",),
    "the tokens of rows that are kept, where nobody said what was fed": ("model/forward/feed.py:Feed.tokens_of",),
    "rows of a GGUF file, which lie on the CPU alone": (
        "model/layers/gguf_matrix.py:GgufMatrix.dense_weight",
        "model/layers/gguf_matrix.py:unpack_rows",
    ),
    "tables of the CPU": (
        "model/forward/slicing.py:_LayerCut.__init__",
        "model/stores/tree.py:CacheTree._cut_groups",
        "model/stores/cache.py:KVCache.reorder",
    ),
}  # fmt: skip


def places(table: dict[str, tuple[str, ...]]) -> set[str]:
    return {place for some in table.values() for place in some}


def everywhere() -> Iterator[tuple[str, str]]:
    """Yield (source, file) of all rooms."""
    for room in ("engine", "lab", "app"):
        yield from read(ENGINE.parent / room)


def test_no_tensor_is_made_without_its_device() -> None:
    calls = [call for source, file in everywhere() for call in homeless(source, file)]
    unknown = [str(call) for call in calls if call.where not in places(HERE)]
    assert not unknown, "Say device=, make it like its neighbour, or give a reason above: " + "; ".join(
        unknown
    )
    assert places(HERE) == {call.where for call in calls}, "a reason above is for nothing that is there"
    assert len(calls) > 40, "the test needs creations"


def test_a_pass_waits_only_where_it_is_said_why() -> None:
    rooms = ("layers", "attention", "stores", "forward")  # heads and checkpoints are read before a run
    calls = [
        call
        for room in rooms
        for source, file in read(ENGINE, f"model/{room}")
        for call in leaving(source, file)
    ]
    unknown = [str(call) for call in calls if call.where not in places(WAITING)]
    assert not unknown, "A pass waits for its device here: " + "; ".join(unknown)
    assert places(WAITING) == {call.where for call in calls}, "a reason above is for nothing that is there"
    single = {x.where for s, f in everywhere() for x in leaving(s, f) if x.name == "item"}
    once = {
        "methods/weights/finequant.py:group_range",
        "methods/weights/finequant.py:rounding_error",
    }  # when a model is loaded
    assert single == once | {"trace/encoding/frame.py:_Arrays.convert"}, "but for that of an array's number"


@pytest.mark.parametrize(
    ("planted", "bad"),
    [
        ("torch.zeros(3)", True),
        ("torch.tensor([1], dtype=torch.int64) + x", True),
        ("x.index_copy_(0, torch.arange(3), y)", True),
        ("torch.zeros(3).to(torch.bool)", True),
        ("torch.LongTensor([1])", True),
        ("torch.zeros(3).to(x.dtype, device=x.device)", False),
        ("torch.zeros(3, device=x.device)", False),
        ("torch.tensor([1]).view(1, 1).to(x.device)", False),
        ("torch.zeros_like(x) + x.new_ones(3)", False),
        ("torch.tensor([1.0, 2.0]).softmax(0).tolist()", False),
    ],
)
def test_reading_sees_a_creation_without_a_device(planted: str, bad: bool) -> None:
    calls = [*homeless(f"class A:\n    def f(self, x):\n        return {planted}\n", "some.py")]
    assert [call.where for call in calls] == ["some.py:A.f"] * bad


def test_reading_sees_what_waits() -> None:
    source = "def f(x):\n    return x.item(), x.max().tolist(), np.nonzero(x)\n"
    assert [call.name for call in leaving(source, "some.py")] == ["item", "tolist"]


# By name: the parts of a method, for how many results a step of it waits at most (recorded at the level decisions), and how
# often it copies something to the device. These numbers may fall. One copy is of the tokens that came: the draft's own view of
# them is recorded.
STEPS: dict[str, tuple[dict[str, Any], int, int]] = {
    "autoregressive": ({}, 4, 0),
    "chain": (dict(drafter=("draft_model", dict(max_draft_tokens=3))), 10, 5),
    # the additional wait checks that the logits of the heads are numbers; bad ones once went unnoticed into drafts and records
    "medusa": (dict(drafter=("medusa", dict(nodes=8))), 8, 5),
    "h2o": (dict(policy=("h2o", dict(heavy=4, recent=4))), 18, 0),
    "pruned rows": (dict(adaptive_depth=("row_pruning", dict(keep_share=0.5, pruning_layers=[1]))), 4, 0),
    "kivi": (dict(kv_compression=("kivi", dict(group=4, buffer=4))), 10, 0),
    "masked": (dict(strategy=("masked", dict(block=8))), 4, 3),
}
TOKENS = 6


@cache
def moved(decoder: Decoder) -> Decoder:
    """Move a toy to the device. The result can be cached: its data is in the CPU's memory."""
    return decoder.to(device=PLACE)


def away(model: Model) -> Model:
    """The same for a loaded model."""
    return replace(model, decoder=moved(model.decoder))


def opened(parts: dict[str, Any], count: int = TOKENS, **more: Any) -> Session:
    """A session on the device."""
    method = toys.method(**parts)
    model, others = toys.method_models(method)
    models = {role: away(x) for role, x in others.items() if role in method.lanes}
    session = Session(away(model), method, toys.PROMPT, models=models, max_new_tokens=count, **more)
    session.sink = Trace()
    return session


def steps(device: Pretended, parts: dict[str, Any], **more: Any) -> tuple[Session, int, int]:
    """Run a session on the device to its end; return it and the most waits and copies to the device of one step."""
    session = opened(parts, **more)
    session.start()
    waits, ups = [0], [0]
    while not session.is_done:
        device.seen.clear()
        session.step()
        waits.append(device.seen.waits.total())
        ups.append(device.seen.ups.total())
    return session, max(waits), max(ups)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_runs_on_a_device_and_waits_no_more_than_it_did(name: str) -> None:
    parts, most, copies = STEPS[name]
    with pretended() as device:
        session, waits, ups = steps(device, parts)
    assert session.end is not None and session.end.reason == "max_new_tokens"
    assert session.tokens == toys.decode(toys.method(**parts), count=TOKENS).tokens, (
        "the CPU writes another text"
    )
    assert waits <= most and ups <= copies, f"{waits} waits, {ups} copies: {device.seen}"


def whole(kind: str, part: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """The parts of a method that uses this one."""
    if kind == "router":
        return dict(strategy=toys.router_strategy(part[0]), router=part)
    beside = {"schedule": "chain", "acceptance": "chain", "unmasking": "masked"}.get(kind, "autoregressive")
    return {**STEPS[beside][0], kind: part}


EVERY = {f"{kind} {part[0]}": whole(kind, part) for kind in KINDS for part in toys.representatives(kind)}


@pytest.mark.parametrize("name", by_turns(6, EVERY))
def test_every_method_writes_on_a_device_what_it_writes_here(name: str) -> None:
    """Run a prompt and the steps of three tokens: no operation mixes two devices, and no device tensor is read as the CPU's."""
    with pretended():
        session = toys.finish_session(opened(EVERY[name], 3))
    assert session.tokens == toys.decode(toys.method(**EVERY[name]), count=3).tokens


def test_a_step_that_records_counts_alone_waits_less() -> None:
    with pretended() as device:
        assert steps(device, {}, level="summary")[1:] == (2, 0)
        device.seen.clear()
        steps(device, STEPS["pruned rows"][0], level="full")
    assert any(line.startswith("decoding/record/recorder.py") for line in device.seen.waits), (
        "the test needs a record of fields"
    )


def test_a_transform_reads_its_text_on_the_models_device() -> None:
    base, weights = toys.pair()[0].decoder, "width_gates cut_share=0.2 columns_per_gate=16 rank=2 steps=2"
    with pretended():
        there = toys.transformed_decoder(weights, moved(base))
        assert {x.device for layer in there.layers for x in (layer.qkv, layer.down)} == {PLACE}
    assert there.spec == toys.transformed_decoder(weights, base).spec


ASKED: dict[str, tuple[Any, int, int]] = {
    "a number": (lambda x: x.sum().item(), 1, 0),
    "a decision": (lambda x: bool((x > 0).any()), 1, 0),
    "a list": (lambda x: x.tolist(), 1, 0),
    "a copy": (lambda x: x.cpu().numpy(), 1, 0),
    "places": (lambda x: x.nonzero(), 1, 0),
    "what a mask leaves": (lambda x: x[x > 0], 1, 0),
    "what a list names": (lambda x: x[[0, 2]], 0, 1),
    "a tensor of numbers": (lambda x: torch.tensor([1.0, 2.0], device=x.device), 0, 1),
    "an index of the CPU": (lambda x: x[torch.tensor([0, 1])], 0, 1),
    "a number of the CPU": (lambda x: x + torch.tensor(1.0), 0, 0),
    "nothing": (lambda x: x.new_zeros(3).copy_(x.softmax(0)).masked_fill(x > 0, 1.0), 0, 0),
}


@pytest.mark.parametrize("what", ASKED)
def test_the_device_counts_what_has_to_be_waited_for(what: str) -> None:
    ask, waits, ups = ASKED[what]
    with pretended() as device, torch.inference_mode():
        x = torch.arange(3.0, device=PLACE) - 1
        ask(x)
    assert (device.seen.waits.total(), device.seen.ups.total()) == (waits, ups)


REFUSED: dict[str, Any] = {
    "a sum": lambda x: x + torch.ones(3),
    "a product": lambda x: x @ torch.ones(3, 2),
    "an index for copies": lambda x: x.index_copy(0, torch.tensor([1]), x[:1]),
    "values for places": lambda x: x.index_put((torch.tensor([0, 1]),), torch.ones(2)),
    "a CPU's values at places of the device": lambda x: torch.ones(3)[x.long()],
    "joined": lambda x: torch.cat([x, torch.zeros(1)]),
    "an array": lambda x: x.numpy(),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_device_refuses_what_lies_elsewhere(what: str) -> None:
    with pretended(), torch.inference_mode():
        x = torch.arange(3.0, device=PLACE)
        with pytest.raises((RuntimeError, TypeError), match=r"same device|numpy"):
            REFUSED[what](x)


def planted(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the logits of every pass, in the lane."""
    whole = Lane.forward
    monkeypatch.setattr(Lane, "forward", lambda lane, *args, **more: change(whole(lane, *args, **more)))


# By the place of the mistake: the method that has it, the class and function that is changed, and how.
MISTAKES: dict[str, tuple[str, Any, str, Any]] = {
    "a drafter": (
        "drafter token_recycling",
        TokenRecycling,
        "observe",
        lambda x: x.logits + torch.ones(1, 1),
    ),
    "a cache policy": ("policy h2o", H2O, "score", lambda x: x.k + torch.ones(1, 1)),
    "a head": ("drafter medusa", MedusaHeads, "forward", lambda x: x + torch.ones(1, 1)),
}


@pytest.mark.parametrize("where", MISTAKES)
def test_a_mistake_in_a_part_is_seen(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, cls, function, mistake = MISTAKES[where]
    honest, asked = getattr(cls, function), list[Any]()

    def changed(self: Any, first: Any, *args: Any, **more: Any) -> Any:
        asked.append(mistake(first))
        return honest(self, first, *args, **more)

    monkeypatch.setattr(cls, function, changed)
    toys.decode(toys.method(**EVERY[name]), count=3)
    assert asked, "the test needs a part that is asked"
    with pretended(), pytest.raises(RuntimeError, match="same device"):
        toys.finish_session(opened(EVERY[name], 3))


def test_a_mistake_in_a_step_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended() as device:
        with monkeypatch.context() as patched:
            planted(patched, lambda logits: logits if logits.max().item() < 1e9 else -logits)
            assert steps(device, {})[1] == STEPS["autoregressive"][1] + 1
        planted(monkeypatch, lambda logits: logits * torch.ones(logits.shape[-1]))
        with pytest.raises(RuntimeError, match="same device"):
            steps(device, {})


def test_the_machine_is_as_it_was_behind_it() -> None:
    with pretended():
        pass
    assert not torch.cuda.is_available() and not torch._C._only_lift_cpu_tensors()
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device="cuda")
