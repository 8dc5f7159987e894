"""Checks inside one record, made while reading: lengths, ids, probabilities, the order of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np

from decodescope.engine.core.exactness import VALUES

from ..details.consistency import validate_details, validate_forms
from ..details.declarations import Form
from ..details.looks import validate_looks
from ..encoding.versions import check_schema
from ..records.choices import validate_choices
from ..records.environment import validate_environment
from ..records.events import (
    CacheChange,
    DraftTops,
    DraftTree,
    End,
    Fields,
    Header,
    Packed,
    Pass,
    Piece,
    Plan,
    Prefill,
    Scores,
    Step,
    Tops,
    Trials,
)
from ..records.evidence import Telling
from ..records.passes import SIGNS
from ..records.prompt_cut import validate_cut
from ..records.reference import ReferenceRecord
from ..records.thinned_mass import validate_thinned
from ..records.weight_reports import validate_reports
from ..values.formula import FormulaError, formula, relation, sentence
from ..values.limits import TEXTS, TraceError
from ..values.numbers import (
    EPS,
    validate_array,
    validate_counts,
    validate_ids,
    validate_lengths,
    validate_probabilities,
    validate_range,
)
from .model_shapes import validate_models

FORMS = ("soft", "latent", "state")  # forms of extra entries next to those of a text
BITS = 1 << 20  # a number of a saved cache, its file's head and tokens included, takes fewer
NOTES, NOTE = 32, 400  # of an end record, characters of one
KINDS = 127  # kinds of heads in a plan, which stores each head's kind as int8


def validate_header(header: Header) -> None:
    """Refuse another major version, and ids outside the vocabulary."""
    check_schema(header.schema)
    if header.exactness not in VALUES:
        raise TraceError(f"its exactness {header.exactness[:40]!r} is none of {', '.join(VALUES)}")
    validate_models(header)
    validate_array(header.prompt, "prompt", 1, "iu")
    if not header.prompt.size:
        raise TraceError("prompt has no tokens, and a run needs at least one to begin with")
    vocab = vocab_size(header)
    if not 0 <= int(header.prompt.min()) <= int(header.prompt.max()) < vocab:
        raise TraceError(f"prompt holds an id outside the vocabulary of {vocab:,}")
    entries = 0 if header.loaded is None else header.loaded.get("entries")
    if type(entries) is not int or not 0 <= entries < max(header.prompt.size, 1):
        raise TraceError(
            f"loaded.entries is {str(entries)[:20]}, and the prompt has {header.prompt.size} tokens"
        )
    if (bits := (header.loaded or {}).get("bits")) is not None and (
        type(bits) not in (int, float) or not 0 <= bits < BITS
    ):
        raise TraceError(f"loaded.bits is {str(bits)[:20]}, which is no number from 0 to {BITS:,}")
    validate_counts([header.batch or 0], "batch")
    _validate_piece_ids(header.pieces, vocab)
    if header.reports is not None:
        validate_reports(header.reports, {"target": header.model, **header.lanes})
    validate_forms(header.details)
    for name, telling in header.tellings.items():
        _validate_telling(telling, f"tellings.{name[:20]}")


def _validate_telling(telling: Telling, where: str) -> None:
    """Its formulas can be read."""
    try:
        for text in telling.formulas():
            formula(text)
        for due in telling.relations:
            relation(due.holds)
        for text in telling.sentences():
            sentence(text)
    except FormulaError as error:
        raise TraceError(f"{where}: {str(error).rstrip('.')}") from None


def vocab_size(header: Header) -> int:
    """How many ids the target's vocabulary has; without a word about it, as many as fit."""
    vocab = header.model.get("vocab")
    return vocab if type(vocab) is int and vocab > 0 else 1 << 31


def validate_prefill(prefill: Prefill, header: Header) -> None:
    """Counts of the prompt's reading, and what was read of it."""
    validate_counts([prefill.n], "n")
    _validate_passes_and_cache(prefill)
    if prefill.cut is not None:
        validate_cut(prefill.cut, len(header.prompt), vocab_size(header))


def validate_end(end: End, vocab: int) -> None:
    """Counts, ids and notes of the end record."""
    validate_counts([end.steps, end.records], "steps and records")
    if len(end.remarks) > NOTES or any(len(text) > NOTE for text in end.remarks):
        raise TraceError(f"notes and violations must be at most {NOTES}, each of at most {NOTE} characters")
    validate_ids(end.tokens, vocab, "tokens")


def validate_step(step: Step, index: int, vocab: int, forms: Mapping[str, Form]) -> None:
    """Check everything about a step that needs no other step; `index` is its place among the steps,
    `forms` the header's declarations of its details."""
    if step.step != index:
        raise TraceError(f"step is {step.step}, where {index} is due")
    validate_counts([step.n, step.drafted, step.accepted], "n, drafted and accepted")
    if step.accepted > step.drafted:
        raise TraceError(f"accepted is {step.accepted}, above drafted, which is {step.drafted}")
    if len(step.origins) != len(step.emitted):
        raise TraceError(f"origins has {len(step.origins)} entries for {len(step.emitted)} emitted tokens")
    validate_ids(step.emitted, vocab, "emitted")
    _validate_piece_ids(step.pieces or {}, vocab)
    _validate_passes_and_cache(step)
    nodes = 0 if step.draft is None else _validate_tree(step.draft, vocab)
    if step.path is not None:
        # without the tree only the rows of a pass bound a node's number: auxiliary nodes may come before it
        rode = max((x.tokens - 1 for x in step.passes), default=0)
        _validate_path(step.path, step.draft, max(step.drafted, rode) if step.draft is None else nodes)
    if step.trials is not None:
        _validate_trials(step.trials, nodes)
    if step.draft is not None and step.draft.passengers:
        _validate_auxiliary_nodes(step, step.draft.passengers)
    if step.forced and not (min(step.forced) >= 0 and max(step.forced) < nodes):
        raise TraceError(f"forced names a node outside the tree of {nodes}")
    if step.tops is not None:
        # without a verdict the rows of the pass come after the tokens that the step emitted
        _validate_tops(step.tops, len(step.emitted) - 1 if step.path is None else nodes, vocab)
    _validate_distributions(step, nodes, vocab)
    if step.extra is not None:
        validate_ids([step.extra.token], vocab, "extra.token")
        validate_probabilities([step.extra.low, step.extra.high, step.extra.u], "extra")
    for left in step.exits or ():
        validate_ids([*(left.best or ()), *(left.whole or ())], vocab, "exits")
    validate_details(step.details or (), forms, vocab)
    validate_looks(step.looks)
    validate_environment(step.environment)
    validate_choices(step.choices, len(step.emitted), vocab)


def _validate_distributions(step: Step, nodes: int, vocab: int) -> None:
    """Distributions of the draft, and those of level "full"."""
    if step.draft_tops is not None:
        _validate_draft_tops(step.draft_tops, nodes, vocab)
    if step.fields is not None:
        _validate_full_distributions(step.fields, [] if step.draft is None else step.draft.tokens)


def _validate_tree(draft: DraftTree, vocab: int) -> int:
    n = len(draft.tokens)
    validate_lengths(n, "draft", parents=draft.parents, q=draft.q, u=draft.u)
    validate_ids(draft.tokens, vocab, "draft.tokens")
    for node, parent in enumerate(draft.parents):
        if not -1 <= parent < node:
            raise TraceError(
                f"draft.parents.{node} is {parent}: a parent comes before its children, -1 is the root"
            )
    validate_probabilities(draft.q, "draft.q")
    validate_probabilities(draft.u or (), "draft.u")
    before = -1
    for node in draft.passengers or ():
        if not before < node < n:
            raise TraceError(f"draft.passengers names the node {node} of a tree of {n}, after node {before}")
        before = node
    return n


def _validate_auxiliary_nodes(step: Step, passengers: Sequence[int]) -> None:
    """Raise TraceError where a passenger was tried or accepted."""
    for name, nodes in (
        ("path", step.path),
        ("trials.node", None if step.trials is None else step.trials.node),
    ):
        if wrong := sorted(set(passengers) & set(nodes or ())):
            raise TraceError(f"{name} names node {wrong[0]}, a passenger, which is never tried")


def _validate_path(path: list[int], draft: DraftTree | None, nodes: int) -> None:
    above = -1
    for node in path:
        if not above < node < nodes:
            raise TraceError(f"path names the node {node} of a tree of {nodes}, after node {above}")
        if draft is not None and draft.parents[node] != above:
            raise TraceError(f"path goes from node {above} to node {node}, which is not its child")
        above = node


def _validate_trials(trials: Trials, nodes: int) -> None:
    columns = {f.name: getattr(trials, f.name) for f in fields(trials)}
    validate_lengths(len(trials.node), "trials", **columns)
    if trials.node and not (min(trials.node) >= 0 and max(trials.node) < nodes):
        raise TraceError(f"trials.node names a node outside the tree of {nodes}")
    for name in ("p", "r", "q", "u"):
        validate_probabilities(columns[name], f"trials.{name}")


def _validate_tops(tops: Tops, nodes: int, vocab: int) -> None:
    validate_array(tops.places, "tops.places", 1, "iu")
    validate_array(tops.ids, "tops.ids", 2, "iu")
    places, k = tops.ids.shape
    shapes = {
        "places": (places,),
        "p": (places, k),
        "q": (places, k),
        "rest": (places, 3),
        "entropy": (places,),
    }
    for name, shape in shapes.items():
        array: np.ndarray = getattr(tops, name)
        validate_array(array, f"tops.{name}", len(shape), "iu" if name == "places" else "f")
        if array.shape != shape:
            raise TraceError(f"tops.{name} has the shape {list(array.shape)}, where {list(shape)} is due")
    validate_range(tops.places, -1, nodes - 1, "tops.places")
    validate_range(tops.ids, -1, vocab - 1, "tops.ids")
    for name in ("p", "q", "rest"):
        validate_range(getattr(tops, name), -1e-4, 1 + 1e-4, f"tops.{name}")  # sums in float32
    validate_range(tops.entropy, -1e-3, 100, "tops.entropy")  # in nats: of as many tokens as fit it is 22


def _validate_draft_tops(tops: DraftTops, nodes: int, vocab: int) -> None:
    validate_array(tops.ids, "draft_tops.ids", 2, "iu")
    places, k = tops.ids.shape
    for name, shape, kind in (
        ("places", (places,), "iu"),
        ("logp", (places, k), "f"),
        ("rank", (places,), "iu"),
        ("came", (places,), "f"),
    ):
        array: np.ndarray = getattr(tops, name)
        validate_array(array, f"draft_tops.{name}", len(shape), kind)
        if array.shape != shape:
            raise TraceError(
                f"draft_tops.{name} has the shape {list(array.shape)}, where {list(shape)} is due"
            )
    validate_range(tops.places, -1, nodes - 1, "draft_tops.places")
    validate_range(tops.ids, -1, vocab - 1, "draft_tops.ids")
    validate_range(tops.rank, 1, vocab + 1, "draft_tops.rank")
    for name in ("logp", "came"):
        validate_range(getattr(tops, name), -np.inf, EPS, f"draft_tops.{name}")  # false for nan


def _validate_full_distributions(fields: Fields, drafted: Sequence[int]) -> None:
    nodes = len(drafted)
    if fields.logits is not None:
        validate_array(fields.logits, "fields.logits", 2, "f")
        rows, vocab = fields.logits.shape
        if rows != nodes + 1:
            raise TraceError(f"fields.logits has {rows} rows for {nodes} drafted nodes and the root")
        validate_ids(drafted, vocab, "fields.logits, next to draft.tokens,")
        if (
            not vocab or not np.isfinite(fields.logits.max(1)).all()
        ):  # one token may be at minus infinity, not all; nan spreads
            raise TraceError(
                "fields.logits has a row without a largest finite number, so it gives no distribution"
            )
    if fields.laws is not None and fields.law_of is not None:
        validate_array(fields.laws, "fields.laws", 2, "f")
        validate_array(fields.law_of, "fields.law_of", 1, "iu")
        validate_lengths(nodes, "fields", law_of=fields.law_of.tolist())
        validate_range(fields.law_of, -1, len(fields.laws) - 1, "fields.law_of")
        validate_range(fields.laws, -EPS, 1 + EPS, "fields.laws")
        if fields.logits is not None and fields.laws.shape[1] != fields.logits.shape[1]:
            laws = fields.laws.shape[1]
            raise TraceError(
                f"fields.laws is over {laws} tokens and fields.logits over {fields.logits.shape[1]}"
            )


def _validate_passes_and_cache(record: Step | Prefill) -> None:
    for i, one in enumerate(record.passes):
        _validate_pass(one, f"passes.{i}")
    for i, change in enumerate(record.cache):
        _validate_cache_change(change, f"cache.{i}")
        validate_counts([x for places in change.freed or () for x in places], f"cache.{i}.freed")
        if change.read is not None:
            wrote = [one for one in record.passes if one.lane == change.lane and one.phase != "flush"]
            _validate_read_map(change.read, wrote, f"cache.{i}.read")


def _validate_read_map(read: np.ndarray, passes: Sequence[Pass], where: str) -> None:
    validate_array(read, where, 3, "u")
    validate_range(read, 0, 1, where)
    if not passes or passes[-1].read is None:
        raise TraceError(f"{where} maps what a pass has read, and the last one says that it read all")
    held, loads = passes[-1].held, passes[-1].read
    each: Sequence[int | list[int]] = held if isinstance(held, list) else [held] * len(loads)
    if read.shape[:2] != (len(loads), len(loads[0])):
        raise TraceError(
            f"{where} has {list(read.shape[:2])} layers and KV heads, the pass {[len(loads), len(loads[0])]}"
        )
    mapped = [
        layer[:, : n if isinstance(n, int) else max(n)].sum(1).tolist()
        for layer, n in zip(read, each, strict=True)
    ]
    if mapped != loads:
        raise TraceError(f"{where} maps other numbers of entries than the last pass says that it has read")


def _validate_pass(one: Pass, where: str) -> None:
    some = one.slots, one.shared, one.distinct, one.aside, one.logits, one.together
    validate_counts([one.tokens, one.batch, *(x or 0 for x in some)], where)
    for layers in (
        one.attn,
        one.ffn,
        one.propagated,
        one.copied,
        one.tests,
        one.bounds,
        one.rows,
        one.pending,
    ):
        validate_counts(layers if isinstance(layers, list) else [layers or 0], where)
    if one.rows and max(one.rows) > one.tokens:
        raise TraceError(f"{where}.rows has a layer that {max(one.rows)} rows ran, and {one.tokens} were fed")
    if any(len(signs) != one.tokens or set(signs) - set(SIGNS) for signs in one.routed or []):
        raise TraceError(
            f"{where}.routed does not say of each of {one.tokens} rows what it ran: {', '.join(SIGNS)}"
        )
    if any(len(pair) != 2 for pair in one.joined or []):
        raise TraceError(f"{where}.joined has something else than pairs of a layer and its tokens")
    validate_counts([x for pair in one.joined or [] for x in pair], f"{where}.joined")
    if one.logits is not None and one.logits > one.tokens:
        raise TraceError(f"{where}.logits is {one.logits}, more than the rows that were fed")
    for layer in one.held if isinstance(one.held, list) else [one.held]:
        validate_counts(layer if isinstance(layer, list) else [layer], f"{where}.held")
    if one.read is not None:
        _validate_read(one.read, one.held, f"{where}.read")
    if one.bounds is not None and one.read is not None and len(one.bounds) != len(one.read):
        raise TraceError(f"{where}.bounds has {len(one.bounds)} layers, and read {len(one.read)}")


def _validate_read(read: list[list[int]], held: int | list[int] | list[list[int]], where: str) -> None:
    if not read or not all(read):
        raise TraceError(f"{where} has no layers or KV heads")
    each = held if isinstance(held, list) else [held] * len(read)
    if len(each) != len(read):
        raise TraceError(f"{where} has {len(read)} layers, and held {len(each)}")
    for layer, most in zip(read, each, strict=True):
        validate_counts(layer, where)
        by_head = most if isinstance(most, list) else [most] * len(layer)
        if len(by_head) != len(layer) or any(x > y for x, y in zip(layer, by_head, strict=True)):
            raise TraceError(f"{where} reads more entries of a layer than are held")


def _validate_cache_change(change: CacheChange, where: str) -> None:  # noqa: C901
    validate_counts(
        [change.appended, change.held, change.held_bytes, change.full_bytes, change.evicted_count], where
    )
    if change.evicted_all is not None:
        validate_array(change.evicted_all, f"{where}.evicted_all", 1, "iu")
    if change.evicted is not None:
        validate_array(change.evicted, f"{where}.evicted", 2, "iu")
        if change.evicted.shape[1] != 3:
            raise TraceError(
                f"{where}.evicted has {change.evicted.shape[1]} columns, not layer, head and position"
            )
    _validate_absent(change, where)
    if change.by_head is not None:
        validate_array(change.by_head, f"{where}.by_head", 2, "iu")
        validate_range(change.by_head, 0, change.held, f"{where}.by_head")
        if not change.by_head.size or int(change.by_head.max()) != change.held:
            raise TraceError(f"{where}.by_head has no KV head that holds {change.held} entries, as held says")
    if change.peak_bytes is not None and change.peak_bytes < change.held_bytes:
        raise TraceError(
            f"{where}.peak_bytes is {change.peak_bytes}, below held_bytes, which is {change.held_bytes}"
        )
    if change.head_bytes is not None:
        validate_array(change.head_bytes, f"{where}.head_bytes", 2, "iu")
        validate_range(change.head_bytes, 0, change.held_bytes, f"{where}.head_bytes")
    if change.mass is not None:
        validate_array(change.mass, f"{where}.mass", 3, "u")
    if change.thinned_mass is not None:
        validate_thinned(change.thinned_mass, f"{where}.thinned_mass")
    if change.merged is not None or change.merged_by is not None:
        _validate_merged(change, where)
    if change.shared is not None or change.shared_bytes is not None:
        _validate_shared(change, where)
    if change.plan is not None:
        _validate_plan(change.plan, f"{where}.plan")
    if change.scores is not None:
        _validate_scores(change.scores, f"{where}.scores")
    if change.reference is not None:
        _reference(change.reference, f"{where}.reference")
    validate_counts([change.kept_packed or 0], f"{where}.kept_packed")
    for one in change.augmented or []:
        validate_counts([one.at, one.entries], f"{where}.augmented")
        if one.form not in FORMS:
            raise TraceError(
                f"{where}.augmented has the form {one.form[:20]!r}; there are {', '.join(FORMS)}"
            )
    if change.packed is not None:
        _validate_packed(change.packed, change.held, f"{where}.packed")


def _validate_absent(change: CacheChange, where: str) -> None:
    if max(change.lacks or [0]) > change.appended:
        raise TraceError(
            f"{where}.lacks has a layer that lacks more than the {change.appended} tokens that were committed"
        )
    for name, stretches in (("absent", change.absent), ("filled", change.filled)):
        if stretches is not None:
            _validate_stretches(stretches, f"{where}.{name}")


def _validate_stretches(stretches: np.ndarray, where: str) -> None:
    validate_array(stretches, where, 2, "iu")
    if stretches.shape[1] != 3:
        raise TraceError(
            f"{where} has {stretches.shape[1]} columns, not layer, first position and the one behind the last"
        )
    validate_range(stretches, 0, np.inf, where)
    layer, first, stop = stretches.astype(np.int64).T
    follows = (layer[1:] > layer[:-1]) | ((layer[1:] == layer[:-1]) & (first[1:] > stop[:-1]))
    if (first >= stop).any() or not follows.all():
        raise TraceError(
            f"{where} has a stretch that ends before it begins, or does not follow the one before it"
        )


def _validate_merged(change: CacheChange, where: str) -> None:
    if change.merged is None or change.merged_by is None:
        raise TraceError(f"{where}: of merged and merged_by one is missing")
    for name, array, kinds, columns in (
        ("merged", change.merged, "iu", 4),
        ("merged_by", change.merged_by, "f", 2),
    ):
        validate_array(array, f"{where}.{name}", 2, kinds)
        if array.shape != (len(change.merged), columns):
            raise TraceError(
                f"{where}.{name} has the shape {list(array.shape)}, not {[len(change.merged), columns]}"
            )
    if not np.isfinite(change.merged_by).all():
        raise TraceError(f"{where}.merged_by has a number that is not finite")


def _validate_shared(change: CacheChange, where: str) -> None:
    if change.shared is None or change.shared_bytes is None:
        raise TraceError(f"{where}: of shared and shared_bytes one is missing")
    validate_array(change.shared, f"{where}.shared", 2, "iu")
    if not len(change.shared) or change.shared.shape[1] != 4:
        raise TraceError(f"{where}.shared has the shape {list(change.shared.shape)}, not that of nodes")
    validate_counts([change.shared_bytes, *change.shared[:, 1:].ravel().tolist()], f"{where}.shared")
    if change.shared_bytes > change.full_bytes:
        raise TraceError(
            f"{where}.shared_bytes is {change.shared_bytes}, above full_bytes, which is {change.full_bytes}"
        )
    texts = int(change.shared[change.shared[:, 0] < 0, 3].sum(dtype=np.int64))
    if texts > TEXTS or len(change.shared) >= 2 * texts:
        raise TraceError(
            f"{where}.shared has {len(change.shared)} nodes of {texts} texts, and at most {TEXTS} texts are read"
        )
    for i, (parent, first, stop, refs) in enumerate(change.shared.tolist()):
        before = change.shared[parent].tolist() if 0 <= parent < i else None
        starts = (
            first == 0 and parent == -1 and i == 0
            if before is None
            else first == before[2] and refs <= before[3]
        )
        if not (starts and first < stop <= change.held and refs > 0):
            raise TraceError(
                f"{where}.shared: node {i} ({parent}, {first}, {stop}, {refs}) does not follow the one before it"
            )
    below = np.zeros(len(change.shared), np.int64)
    np.add.at(below, change.shared[1:, 0], change.shared[1:, 3].astype(np.int64))
    if (below > change.shared[:, 3]).any():
        raise TraceError(f"{where}.shared has a node whose children are read by more texts than itself")


def _validate_plan(plan: Plan, where: str) -> None:
    validate_array(plan.entries, f"{where}.entries", 2, "iu")
    validate_range(plan.entries, -1, np.inf, f"{where}.entries")
    if len(plan.kinds) > KINDS:
        raise TraceError(f"{where}.kinds has {len(plan.kinds)} words, above the limit of {KINDS}")
    if plan.kind is not None:
        validate_array(plan.kind, f"{where}.kind", 2, "iu")
        validate_range(plan.kind, 0, len(plan.kinds) - 1, f"{where}.kind")
        if plan.kind.shape != plan.entries.shape:
            raise TraceError(f"{where}.kind has other layers or KV heads than its entries")


def _validate_scores(scores: Scores, where: str) -> None:
    validate_array(scores.cut, f"{where}.cut", 2, "f")
    if scores.entries is not None:
        validate_array(scores.entries, f"{where}.entries", 3, "f")
        if scores.entries.shape[:2] != scores.cut.shape:
            held = list(scores.entries.shape[:2])
            raise TraceError(
                f"{where}.entries has {held} layers and KV heads, and cut {list(scores.cut.shape)}"
            )
    if scores.lost is not None:
        validate_array(scores.lost, f"{where}.lost", 2, "f")
        if scores.lost.shape != scores.cut.shape or not np.array_equal(
            np.isnan(scores.lost), np.isnan(scores.cut)
        ):
            raise TraceError(f"{where}.lost does not cover the layers that cut covers")
        validate_range(scores.lost[~np.isnan(scores.lost)], 0, 1 + EPS, f"{where}.lost")


def _reference(reference: ReferenceRecord, where: str) -> None:
    validate_counts([reference.held_bytes, reference.weight_bytes], f"{where}.held_bytes")
    validate_array(reference.lost_mass, f"{where}.lost_mass", 3, "f")
    validate_range(reference.lost_mass, 0, 1 + EPS, f"{where}.lost_mass")
    validate_array(reference.drift, f"{where}.drift", 1, "f")
    validate_range(reference.drift, 0, np.finfo(reference.drift.dtype).max, f"{where}.drift")
    if len(reference.drift) != len(reference.lost_mass):
        raise TraceError(
            f"{where} records the drift of {len(reference.drift)} rows, and the lost mass of {len(reference.lost_mass)}"
        )
    validate_array(reference.said, f"{where}.said", 1, "iu")
    validate_range(reference.said, 0, (1 << 31) - 1, f"{where}.said")
    if len(reference.said) != len(reference.drift):
        raise TraceError(
            f"{where} records the drift of {len(reference.drift)} rows, and what is said behind {len(reference.said)}"
        )
    if reference.cut_mass is not None:
        validate_array(reference.cut_mass, f"{where}.cut_mass", 2, "f")
        validate_range(reference.cut_mass, 0, 1 + EPS, f"{where}.cut_mass")


def _validate_packed(packed: Packed, held: int, where: str) -> None:
    validate_counts([packed.first, packed.stop - packed.first, packed.bytes, *(packed.layers or [])], where)
    if not (packed.stop <= held and packed.key_error >= 0 and packed.value_error >= 0):
        raise TraceError(f"{where} has entries that are not held, or an error below 0")


def _validate_piece_ids(pieces: dict[str, Piece], vocab: int) -> None:
    for key in pieces:
        if not (key.isascii() and key.isdecimal() and len(key) < 12 and int(key) < vocab):
            raise TraceError(
                f"pieces has the key {key[:20]!r}, which is no id of the vocabulary of {vocab:,}"
            )
