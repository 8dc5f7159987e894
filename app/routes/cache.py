"""Cache: the routes of the Cache page: maps and lifetimes of entries, what two runs keep, searched text, attention."""

from __future__ import annotations

import base64
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.compare.comparable_runs import HeaderCache
from decodescope.app.runs.forks import admit_files
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import MOST_NEW, RunService, without_target
from decodescope.engine.core.roles import TARGET
from decodescope.engine.trace.records.events import Step, ThinnedMass
from decodescope.lab.cache.attention import attention_rows, attention_shares, received_attention
from decodescope.lab.cache.entry_states import shared_stretches
from decodescope.lab.cache.eviction_scores import eviction_scores
from decodescope.lab.cache.lifetimes import KEPT, WORDS, EntryLifetimes, cache_overlap
from decodescope.lab.cache.mass import mass_fractions, recorded_mass, thinning_note, whole_mass
from decodescope.lab.cache.needle import LONGEST, find_text, span_lifetime

from .hardware import answer_for_run
from .recorded_steps import step_at, step_reader, steps_from

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model

HELD = 8  # runs with lifetimes in memory
COLUMNS = 450  # of a map
ENTRIES = 256  # positions of one head, or lines of a table, in one answer
SAMPLES = 240  # steps at which the attention of one entry is looked up
POINTS = 480  # of the series over the steps
TOP = 12  # heavy hitters that are named
WEIGHTS = 1 << 17  # numbers of attention in one answer
BODY = 4096  # bytes of a request to record


class _LivesCache:
    """The lifetimes of the runs requested last, each as far as its run has come."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[RecordStream, EntryLifetimes, threading.Lock]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, channel: RecordStream) -> EntryLifetimes:
        """The lifetimes of a run up to its newest step. Raises Refusal for a run without lifetimes to show."""
        assert channel.wire is not None
        with self._lock:
            known = self._known.get(channel.run)
            if known is None or known[0] is not channel:
                known = self._known[channel.run] = (
                    channel,
                    EntryLifetimes(channel.wire.header),
                    threading.Lock(),
                )
            self._known.move_to_end(channel.run)
            while len(self._known) > HELD:
                self._known.popitem(last=False)
        _, lives, lock = known
        with lock:
            if lives.count == 0 and channel.count and channel.wire.prefill is not None and not lives.prompt:
                lives.learn(channel.wire.prefill)
            if lives.count < channel.count:
                for step in steps_from(channel, lives.count):
                    lives.learn(step)
        return lives


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:  # noqa: C901
    """Add the routes; refused(status, sentence) makes a refusal."""
    known, headers = _LivesCache(), HeaderCache(play)

    async def of(
        run: str, work: Callable[[RecordStream, EntryLifetimes], Any], begun: bool = True
    ) -> Response:
        def lived(channel: RecordStream) -> Any:
            if channel.wire is None or (begun and not channel.count):
                raise RequestRefusal(
                    "The run has made no step yet: there is nothing to show of its cache.", 409
                )
            lives = known.get(channel)
            if begun and lives.unplaced:
                raise RequestRefusal(lives.unplaced, 409)
            return work(channel, lives)

        return await answer_for_run(play, refused, run, lived, "The cache of this run cannot be shown")

    def view(path: str, show: Callable[[Request, RecordStream, EntryLifetimes], dict[str, Any]]) -> None:
        """Answer questions about a run with the result of `show`."""

        @api.get(f"/ds/run/{{run}}/cache{path}")
        async def shown(run: str, request: Request) -> Response:
            return await of(run, lambda channel, lives: show(request, channel, lives))

    for path, show in VIEWS.items():
        view(path, show)

    @api.get("/ds/run/{run}/cache/others")
    async def others(run: str) -> Response:
        return await of(
            run,
            lambda channel, lives: {"runs": headers.comparable_runs(channel.run, lives.header)},
            begun=False,
        )

    @api.get("/ds/run/{run}/cache/compare")
    async def compare(run: str, request: Request) -> Response:
        def work(channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
            other = play.find(request.query_params.get("with", "")[:16])
            if other is None or other.wire is None or not other.count:
                raise RequestRefusal(
                    "The run to compare with is not here any more, or has made no step: choose another one."
                )
            return _compare_runs(request, lives, other.run, known.get(other))

        return await of(run, work)

    @api.post("/ds/run/{run}/cache/attention")
    async def record(run: str, request: Request) -> Response:
        try:
            choice = json.loads((await request.body())[:BODY] or b"{}")
        except (ValueError, RecursionError):
            choice = None
        if not isinstance(choice, dict):
            return refused(400, 'Say which layers as {"layers": [0, 3]}.')
        layers = choice.get("layers")

        def work(channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
            return {"run": _rerun_with_attention(play, lives, layers).run}

        return await of(run, work, begun=False)


def _overview(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """The map after a step, with the reason why the policy keeps each entry."""
    i = _step_param(request, lives)
    columns = min(_int_param(request, "columns", COLUMNS, 1, COLUMNS), max(40, 60_000 // lives.rows))
    step = step_at(channel, i)
    drawn = _attention_mass(step, lives)
    whole = None if drawn is None else whole_mass(drawn, lives.held_mask(i))
    map_ = lives.binned_map(i, columns, whole, _read_entries(step, lives))
    width, across = map_["bin"], map_["columns"]
    mass, read = (_encode_base64(map_[name]) if name in map_ else None for name in ("mass", "read"))
    starts = range(0, across * width, width)
    merged = lives.fates.merge_map(i, lives.rows, width, across)
    least, most = lives.held_range(i)
    return {
        "step": i,
        "count": lives.count,
        "length": lives.length[i],
        "layers": lives.layers,
        "heads": lives.heads,
        "bin": width,
        "columns": across,
        "kept": _encode_base64(map_["kept"]),
        "now": _encode_base64(map_["now"].astype(np.uint8)),
        "mass": mass,
        "thinned": thinning_note(drawn),
        "read": read,
        "merged": None if merged is None else _encode_base64(merged.astype(np.uint8)),
        "absent": _encode_base64(map_["absent"]) if "absent" in map_ else None,
        "cut": lives.cut,
        "packed": min(lives.fates.packed_length(i), lives.length[i]),
        "packed_layers": lives.fates.packed_layers(i),
        "texts_shared": _shared_texts(step),
        "bits": lives.fates.bits,
        "texts": [_token_text(channel, lives, p) for p in starts],
        "held": most,
        "least": least,
        "kept_bytes": lives.held_bytes(i),
        "full": lives.full[i],
        "evicted": lives.evicted[i],
        "went": lives.went,
        "sinks": lives.sinks,
        "near": lives.near,
        "once": lives.once,
        "heavy": lives.heavy,
        "budget": lives.budget,
        "untold": lives.untold,
        "unlisted": lives.unlisted_reason,
        "missed": lives.missed.of(i),
        "by_head": None if lives.untold else lives.head_summary(i),
        "beside": lives.fates.extra_kv(i),
        "loaded": (lives.header.loaded or {}).get("entries", 0),
        "words": WORDS,
    }


def _head_entries(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """A stretch of the positions of one layer and head after a step."""
    i, row = _step_param(request, lives), _int_param(request, "row", 0, 0, lives.rows - 1)
    n = lives.length[i]
    first = _int_param(request, "from", 0, 0, n)
    last = min(n, first + _int_param(request, "many", ENTRIES, 1, ENTRIES))
    mass = _attention_mass(step_at(channel, i), lives)
    part = None if mass is None else mass_fractions(mass, lives.held_mask(i))[row]
    left, letters = lives.eviction_steps(i)[row, first:last], lives.letters(row, i, first, last)
    entries = [
        [
            first + k,
            _token_text(channel, lives, first + k),
            letters[k],
            None if left[k] == KEPT else int(left[k]),
            None if part is None or first + k >= len(part) else round(float(part[first + k]), 6),
        ]
        for k in range(last - first)
    ]
    return {
        "step": i,
        "row": row,
        "from": first,
        "length": n,
        "held": int(lives.held_mask(i)[row].sum()),
        "entries": entries,
    }


def _lives(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """Lifetimes of a stretch of positions up to a step."""
    i = _step_param(request, lives)
    first = _int_param(request, "from", 0, 0, lives.length[i])
    rows = lives.table(i, first, first + _int_param(request, "many", 64, 1, ENTRIES))
    return {
        "step": i,
        "rows": [{**row, "text": _token_text(channel, lives, row["position"])} for row in rows],
    }


def _life(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """The life of one position, and the attention that it drew."""
    i = _step_param(request, lives)
    p = _int_param(request, "position", 0, 0, max(0, lives.length[i] - 1))
    came = lives.creation_step(p)
    rows, scores = lives.lifetime(p, i), []
    with step_reader(channel) as record:
        steps, masses = _mass_history(record, lives, p, max(0, came), i)
        if "full" in lives.header.levels:  # else none were recorded
            scores = eviction_scores(
                lambda k: channel.wire.prefill if k < 0 and channel.wire else record(k), p, rows, lives.heads
            )
    return {
        "step": i,
        "position": p,
        "text": _token_text(channel, lives, p),
        "came": came,
        "rows": rows,
        "late": lives.arrival_steps(p),
        "scores": scores,
        **lives.fates.of(p, i),
        "steps": steps,
        "mass": masses,
    }


def _heavy_hitters(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """The entries with the largest part of the attention, per head or over all."""
    i = _step_param(request, lives)
    row = _int_param(request, "row", 0, 0, lives.rows - 1) if request.query_params.get("row") else None
    step, held = step_at(channel, i), lives.held_mask(i)
    mass = _attention_mass(step, lives)
    seen = (
        None
        if step.fields is None
        else received_attention(step.fields, lives.rows, lives.heads, lives.length[i])
    )
    measured = "" if seen is None else "step"
    if mass is not None:
        measured = "mass"
    recorded = list(range(lives.rows))
    if mass is not None:
        worth = np.zeros(held.shape)
        part = mass_fractions(mass, held)[:, : held.shape[1]]
        worth[:, : part.shape[1]] = part
    elif seen is not None:
        recorded = [k for k in range(lives.rows) if not np.isnan(seen[k]).any()]
        worth = np.nan_to_num(seen)
    else:  # no scores: old entries that are still held count as rated highly
        old = np.arange(held.shape[1]) < lives.window_start(held.shape[1])
        worth = np.where(held & old, 1.0, 0.0) if not held.all() else np.zeros(held.shape)
    mine = worth[recorded].mean(0) if row is None else worth[row]
    best = [int(p) for p in np.argsort(-mine, kind="stable")[:TOP] if mine[p] > 0]
    rows = [
        [p, _token_text(channel, lives, p), round(float(mine[p]), 6), int(held[:, p].sum())] for p in best
    ]
    return {
        "step": i,
        "row": row,
        "measured": measured,
        "of": lives.rows - len(lives.cut),
        "recorded": recorded,
        "rows": rows,
    }


def _find_text(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """Find a text, and report what became of its entries."""
    i, text = _step_param(request, lives), request.query_params.get("text", "")
    if not text.strip() or len(text) > LONGEST:
        raise RequestRefusal(
            f"Give the text to look for, at most {LONGEST} characters; this one has {len(text)}."
        )
    assert channel.wire is not None
    n = lives.length[i] + 1  # the newest token of the text is not read yet
    spans = find_text(text, lives.tokens[:n], channel.wire.text)
    if not spans:
        return {
            "step": i,
            "places": [],
            "sentence": "It does not occur in the text so far: look for a shorter part of it.",
        }
    which = min(_int_param(request, "which", 0, 0, 1 << 20), len(spans) - 1)
    first, last = spans[which]
    return {"step": i, "places": spans, "which": which, **span_lifetime(lives, first, last, i)}


def _attention(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """The softmax weights of one layer and head in a step, if they are recorded."""
    i = _step_param(request, lives)
    step = step_at(channel, i)
    fields = step.fields
    if fields is None or fields.attention is None or not fields.layers:
        return {"step": i, "layers": []}
    layer = _int_param(request, "layer", fields.layers[0], 0, lives.layers - 1)
    layer = layer if layer in fields.layers else fields.layers[0]
    h = _int_param(request, "head", 0, 0, lives.heads - 1)
    lines = max(1, int(np.prod(fields.attention.shape[2:4])))
    weights = attention_rows(fields, layer, h, max(1, min(COLUMNS, WEIGHTS // lines)))
    seen, rows = weights.pop("known"), weights.pop("rows")
    length = lives.length[i]
    first, newest = lives.sinks or 1, lives.near or 16
    # the row of a committed token: the root first, then the accepted tokens after it
    begin = step.n - 1
    return {
        "step": i,
        "layers": fields.layers,
        "layer": layer,
        "head": h,
        **weights,
        "texts": [_token_text(channel, lives, p) for p in weights["positions"]],
        "queries": [[begin + r, _token_text(channel, lives, begin + r)] for r in range(rows.shape[1])],
        "first": first,
        "newest": newest,
        "shares": [round(x, 5) for x in attention_shares(seen, rows, first, newest, length)],
    }


def _compare_runs(
    request: Request, lives: EntryLifetimes, other: str, beside: EntryLifetimes
) -> dict[str, Any]:
    """Which entries two runs of one prompt hold of the text that they share; other: the second one's id. Raises
    RequestRefusal."""
    i = _step_param(request, lives)
    if (beside.layers, beside.heads) != (lives.layers, lives.heads):
        raise RequestRefusal(
            f"The two runs differ in shape ({lives.layers} × {lives.heads} against {beside.layers} × {beside.heads} "
            "layers and KV heads): choose a run of the same model."
        )
    if not np.array_equal(lives.header.prompt, beside.header.prompt):
        raise RequestRefusal(
            "The two runs have different prompts, so their positions are not the same: choose another run."
        )
    if lives.untold or beside.untold:
        raise RequestRefusal(
            "One of the runs does not say which entries it evicted: record it with level “decisions”."
        )
    j = beside.step_at_length(lives.length[i])
    overlaps = cache_overlap(lives, i, beside, j)
    return {"step": i, "with": other, "beside": j, "layers": lives.layers, "heads": lives.heads, **overlaps}


def _shared_texts(step: Step) -> list[list[int]]:
    """Stretches of the text that several texts of the run read, each held once."""
    nodes = next((x.shared for x in step.cache if x.lane == "target"), None)
    return [] if nodes is None else shared_stretches(nodes)


def _shared_prefix_tree(request: Request, channel: RecordStream, lives: EntryLifetimes) -> dict[str, Any]:
    """The tree of entries that several texts share after a step, and the bytes that it saves.
    Each node is [node before it, first position, end position, texts that read it]. There are no nodes without such entries."""
    step = step_at(channel, _step_param(request, lives))
    change = next((x for x in step.cache if x.lane == "target" and x.shared is not None), None)
    if change is None or change.shared is None:
        return {"nodes": [], "bytes": 0, "of": 0}
    return {"nodes": change.shared.tolist(), "bytes": change.shared_bytes, "of": change.held}


VIEWS: dict[str, Callable[[Request, RecordStream, EntryLifetimes], dict[str, Any]]] = {
    "": _overview,
    "/head": _head_entries,
    "/lives": _lives,
    "/life": _life,
    "/heavy": _heavy_hitters,
    "/series": lambda request, channel, lives: lives.series(POINTS),
    "/find": _find_text,
    "/shared": _shared_prefix_tree,
    "/attention": _attention,
}


def _rerun_with_attention(play: RunService, lives: EntryLifetimes, layers: Any) -> RecordStream:
    """Start the run again and record the attention of these layers. Raises RequestRefusal."""
    if (
        not isinstance(layers, list)
        or not 0 < len(layers) <= lives.layers
        or not all(type(x) is int for x in layers)
    ):
        raise RequestRefusal(
            f"Choose 1 to {lives.layers} layers, by their numbers from 0 to {lives.layers - 1}."
        )
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.replay.fork import check_same_models
    from decodescope.engine.session.session import Session

    header = lives.header
    if header.fork is not None:
        raise RequestRefusal(
            "This run was forked off another one: record that one, or fork it with the command line or Python."
        )
    admit_files(play, header)
    method = Method.from_record(header.method)

    def session(models: Mapping[str, Model]) -> Session:
        check_same_models(header, models, method.lanes)
        return Session(
            models[TARGET],
            method,
            header.prompt.tolist(),
            models=without_target(models),
            max_new_tokens=min(header.max_new_tokens, MOST_NEW),
            seed=header.seed,
            stop_tokens=header.stop_tokens,
            stop_texts=header.stop_texts,
            chat=header.chat,
            turn=header.turn,
            prompt_kind=header.prompt_kind,
            reference=header.reference_kind,
            level="full",
            layers=sorted(set(layers)),
        )

    return play.launch(play.find_recorded_models(header), session)


def _int_param(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number of the question, or RequestRefusal."""
    given = request.query_params.get(name, "")
    if not given:
        return min(max(default, low), high)
    if not (given.isascii() and given.isdigit() and len(given) < 10) or not low <= int(given) <= high:
        raise RequestRefusal(f"{name} = {given[:20]}: must be a whole number in [{low}, {high}].")
    return int(given)


def _step_param(request: Request, lives: EntryLifetimes) -> int:
    return _int_param(request, "step", lives.count - 1, 0, lives.count - 1)


def _attention_mass(step: Step, lives: EntryLifetimes) -> np.ndarray | ThinnedMass | None:
    """The map of attention that the entries have drawn by this step, whole or thinned, if it was recorded."""
    mass = recorded_mass(next((x for x in step.cache if x.lane == "target"), None))
    rows = mass.means if isinstance(mass, ThinnedMass) else mass
    return mass if rows is not None and rows.shape[:2] == (lives.layers, lives.heads) else None


def _read_entries(step: Step, lives: EntryLifetimes) -> np.ndarray | None:
    """uint8 [layers, heads, n] of the entries read by the step's last pass, if it did not read all."""
    read = next((x.read for x in step.cache if x.lane == "target"), None)
    return read if read is not None and read.shape[:2] == (lives.layers, lives.heads) else None


def _mass_history(
    record: Callable[[int], Step], lives: EntryLifetimes, position: int, first: int, last: int
) -> tuple[list[int], list[str] | None]:
    """Steps first..last, at most SAMPLES of them, and per step the mass of a position, uint8 [rows], packed.
    None if no step has it."""
    every = max(1, -(-(last - first + 1) // SAMPLES))
    steps = sorted({*range(first, last + 1, every), last})
    columns, some = [], False
    for i in steps:
        drawn = _attention_mass(record(i), lives)
        mass = None if drawn is None else whole_mass(drawn)
        some |= mass is not None
        flat = (
            np.zeros(lives.rows, np.uint8)
            if mass is None or position >= mass.shape[2]
            else mass[:, :, position].ravel()
        )
        columns.append(_encode_base64(flat))
    return steps, columns if some else None


def _encode_base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=np.uint8).tobytes()).decode()


def _token_text(channel: RecordStream, lives: EntryLifetimes, position: int) -> Any:
    """The token text at a position, for a view; "" beyond the end of the text."""
    assert channel.wire is not None
    return channel.wire.text(lives.tokens[position]) if 0 <= position < len(lives.tokens) else ""
