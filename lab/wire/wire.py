"""Wire: the messages that a view gets on a run. This is the one place where records become what a page draws.

In a trace the root is -1 and the first drafted node 0; on the wire the root is node 0 and every node is one higher.
Nowhere else are indices shifted. A message is plain data: numbers are full doubles, a token's text is a string, or a
list of hex codes where it is only bytes of a character. Times are seconds.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import orjson

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.trace.checks.decisions import step_trials, telling_at
from decodescope.engine.trace.checks.notes import declared_notes as noted
from decodescope.engine.trace.encoding.forks import header_at
from decodescope.engine.trace.query.comparability import comparison_key, exactness_mark, is_plain
from decodescope.engine.trace.query.titles import title
from decodescope.engine.trace.records.events import End, Header, Piece, Prefill, Step
from decodescope.engine.trace.records.parts import method_label, part_description, zones
from decodescope.engine.trace.records.phases import is_deciding_pass
from decodescope.lab.cost.machine import machine_of
from decodescope.lab.formatting.style import STATUS_OF_ORIGIN

from . import notes
from .cache import encode_cache, encode_cache_maps, encode_entry_facts, has_cache_map
from .canvas import encode_canvas, encode_chain
from .copies import encode_copies
from .depths import add_exits, encode_depth
from .drafts import encode_draft
from .evidence import encode_detail_forms, encode_evidence
from .lanes import encode_lanes, encode_views
from .machine_load import encode_machine_load
from .model_build import encode_models
from .pass_costs import PassCostEncoder
from .picture_shape import encode_picture_shape
from .prompt import encode_prompt_tail
from .prompt_cut import encode_prompt_cut
from .reference import encode_reference, reference_name
from .repeats import RepeatEncoder
from .scale import encode_scale
from .single_precision import single_precision as _single
from .survey import encode_survey
from .tally import encode_tally
from .threads import encode_threads
from .trees import encode_branches, encode_tree, encode_tree_forms

BUDGET = 4096  # bytes of one step on the wire; a larger one is sent without unreached nodes
LONGEST = 4096  # characters of one token
LAW = 1024  # bytes of the distributions at one place that are sent with a step nobody requested
NOTES, BRIEF = 1024, 512  # bytes of the notes of a step that is not requested, and of one without its tree


class Wire:
    """Turns the records of one run into messages. `learn` must see every step once, in order; `step` accepts any of them, in
    any order.

    head:  model, method, prompt        {"kind": "head", ...}
    step:  one step, with its tree      {"kind": "step", "i": 17, ...}
    brief: the same without the tree, for steps that a reader skips

    A node is [parent, text, token id, q, p, u, status, r, threshold, num, den]; r is the residual of p when the node was tried;
    num and den are sent if they are not r and q.
    Values missing at the end of a row are null, and the status is then "unreached".
    tops: per visited place [node, entropy, [rest of p, of q, of max(0, p - q)], [[token id, text, p, q], ...]]; p with its
    rest adds up to one. The trace keeps these in single precision; they are sent with as many digits as that needs.
    Evicted entries are listed once, in the step that lost them: "gone" left every layer and head, "out" has a list per
    row (layer x KV head). A run of positions is [first, last]. Step 0 includes those lost during the prefill.
    forced: nodes with a verdict that was set beforehand, in a fork; by: the acceptance rule of a step that was made with
    another method than the head's, before the run was forked; sampler: the description of that method's sampler.
    `telling`, in the head: the evidence of the acceptance rule, with its formulas parsed into lists (`lab/wire/evidence.py`); a
    step of a rule with other evidence has its own.
    depth: which layers ran, and by which tests (`lab/wire/depths.py`).
    passes: per lane and phase the bytes and operations, by the cost model, and the time (`engine/cost/passes.py`).
    cost, also in passes: the cost of the step and its check in passes over one row, in words (`lab/wire/pass_costs.py`).
    tally: what a strategy tried by itself (`lab/wire/tally.py`).
    forms, in the head: the meaning of a step's details that a view draws itself (`lab/wire/evidence.py`).
    along, in the head, and beside, in a step: the reference that ran too, and its result for each token
    (`lab/wire/reference.py`).
    again, rounds: repeated stretches of the text, and the rounds of a text in a loop (`lab/wire/repeats.py`).
    built, in the head: the structure of the models, matrix by matrix (`lab/wire/model_build.py`).
    trees, in the head: the meaning of trees; tree, branches: one that grew within the step, one that grows over steps
    (`lab/wire/trees.py`).
    survey: matrices of what a strategy compared with each other (`lab/wire/survey.py`).
    from: positions in prompt and text that a step's tokens were copied from (`lab/wire/copies.py`).
    lanes: rows drawn in lanes over the steps (`lab/wire/lanes.py`);  scale: rows drawn as bars on one axis
    (`lab/wire/scale.py`);  views, in the head: the words of both.
    tells, in the head: the signals that the parts of the method record for a step; notes, in a step: the values
    (`lab/wire/notes.py`), those of nodes only with the tree. If there is no room, notes of nodes are dropped first and those of
    series last; "few" says so.
    exactness, in the head: one of four values; text: its label, and why it is not lossless; plain: it is plain decoding;
    setting: exact runs with an equal one have one text (`engine/trace/query/comparability.py`).
    The head names the machine of the run: `profile`, or the one in the header; otherwise it names none.
    """

    def __init__(self, header: Header, profile: HardwareProfile | None = None):
        self.header = header
        self.profile = profile or _recorded_machine(header)
        self._passes = PassPricer(header)
        self._costs = PassCostEncoder(header)
        self._again = RepeatEncoder(header)
        self._telling = telling_at(header)
        self.pieces: dict[str, Piece] = dict(header.pieces)
        self._shown: dict[int, Piece] = {}  # token -> its text for a view, once it was requested
        self.prefill: Prefill | None = None
        self._sums: list[tuple[float, ...]] = []  # per step: the counters after it
        self._last: list[int] = []  # per step: the token that the text ends with after it
        self._said: list[dict[str, Any]] = []  # per step: its repetitions
        self._read: list[dict[str, int]] = []  # per step: lane -> entries that its cache has ever read

    @property
    def count(self) -> int:
        """Number of steps learned so far."""
        return len(self._sums)

    def learn(self, record: Prefill | Step) -> None:
        """Update pieces and counters from the record."""
        if isinstance(record, Prefill):
            self.prefill = self._passes.learn(record)
            return
        self.pieces.update(record.pieces or {})
        passes = sum(map(is_deciding_pass, record.passes))
        tried = [] if record.trials is None else record.trials.ok
        new = (
            len(record.emitted),
            passes,
            len(tried),
            sum(tried),
            record.drafted,
            record.accepted,
            record.wall_us / 1e6,
        )
        before = self._sums[-1] if self._sums else (0,) * len(new)
        self._sums.append(tuple(a + b for a, b in zip(before, new, strict=True)))
        self._last.append(record.emitted[-1] if record.emitted else self._root_token(record.step))
        first = self.prefill.cache if self.prefill is not None else []
        read = dict(self._read[-1]) if self._read else {change.lane: change.appended for change in first}
        for change in record.cache:
            read[change.lane] = read.get(change.lane, 0) + change.appended
        self._read.append(read)
        self._said.append(self._again.learn(record))

    def head(self) -> dict[str, Any]:
        """The head message, which applies to all steps."""
        h = self.header
        return {
            "kind": "head",
            "run": h.run,
            "model": _encode_model_summary(h.model),
            "entries": encode_entry_facts(h),
            "built": encode_models(h),
            "lanes": {role: _encode_model_summary(spec) for role, spec in h.lanes.items()},
            "method": h.method,
            "called": method_label(h),
            "named": title(h),
            "parts": {kind: part_description(h, kind) for kind in h.method}
            | {"zones": [zone.record() for zone in zones(h)]},
            "telling": None if self._telling is None else encode_evidence(self._telling),
            "tells": notes.encode_declarations(h),
            "forms": encode_detail_forms(h),
            "exactness": h.exactness,
            "text": list(exactness_mark(h)),
            "plain": is_plain(h),
            "setting": comparison_key(h),
            "seed": h.seed,
            "max_new": h.max_new_tokens,
            "created": h.created,
            "dtype": h.dtype,
            "device": h.device,
            "threads": h.threads,
            "levels": h.levels,
            "along": reference_name(h),
            "fork": None if h.fork is None else {k: h.fork.get(k) for k in ("of", "step", "name", "change")},
            **({"trees": declared} if (declared := encode_tree_forms(h)) else {}),
            **encode_prompt_tail(h, self.prefill, self.text),
            **encode_picture_shape(h),
            **encode_views(h),
            "shortened": encode_prompt_cut(h, self.prefill, self._passes, self.text),
            "prefill": self.prefill.wall_us / 1e6 if self.prefill is not None else None,
            "passes": self._passes.rows(self.prefill.passes) if self.prefill is not None else [],
            "machine": None if self.profile is None else machine_of(self.profile, h.dtype),
        }

    def step(self, step: Step, *, whole: bool = False, spared: Collection[str] = ()) -> dict[str, Any]:
        """One step with its tree. Unless `whole`, it keeps to the BUDGET.
        Nodes that were not reached may then be left out (null instead of them, so that the numbers of the others stay), and
        "cut" says so. Only the distributions at one place are sent, where a reader looks first, and no maps of the cache.
        "few" says which of the two is missing, or is true if anything else is left out. Evictions in large numbers are
        "lost". spared: "laws", "passes": these are not made, and named in "few"."""
        message = self._encode_common(step)
        if "passes" in spared:
            _mark_left_out(message, "passes")
        else:
            message["passes"] = self._passes.rows(step.passes, step.draft)
            self._costs.add_costs(message["passes"])
        message["nodes"] = self.nodes(step)
        path = [0, *(node + 1 for node in step.path or [])]
        trials = [] if step.trials is None else list(zip(step.trials.node, step.trials.ok, strict=True))
        refused = [node for node, ok in trials if not ok]
        message["verdict"] = {
            "path": path,
            "first_reject": refused[0] + 1 if refused else None,
            "tried": [node + 1 for node, _ in trials],
            "ok": [int(ok) for _, ok in trials],
        }
        message |= encode_draft(self.header, step) | encode_canvas(self.header, step, self.text, whole=whole)
        message |= encode_tally(self.header, step, self.text, whole)
        message |= encode_scale(self.header, step, self.text, whole) | encode_tree(
            self.header, step, self.text, whole
        )
        message |= encode_survey(self.header, step, self.text, whole)
        tests = step_trials(self.header, step)
        if tests is not None and tests.extra:
            message["rule"] = {
                x.name: tests.extra[x.name] for x in tests.telling.columns if x.name in tests.extra
            }
        telling = telling_at(self.header, step.step) if tests is None else tests.telling
        if telling is not self._telling:
            message["telling"] = None if telling is None else encode_evidence(telling)
        if step.forced:
            message["forced"] = [node + 1 for node in step.forced]
        if (by := header_at(self.header, step.step)) is not self.header:
            message["by"] = by.method.get("acceptance")
            message["sampler"] = part_description(by, "sampler")
        if step.extra is not None:
            message["verdict"]["extra"] = [step.extra.u, step.extra.low, step.extra.high]
        message |= encode_chain(self.header, step, self._label_tokens)
        add_exits(message, step, self.text, whole)
        if step.tops is not None and "laws" in spared:
            _mark_left_out(message, "laws")
        else:
            self._add_distributions(message, step, whole)
        self._add_notes(message, step, whole)
        if whole:
            for change, row in zip(step.cache, message["kv"], strict=True):
                row |= encode_cache_maps(change)
            return message
        if any(map(has_cache_map, step.cache)):
            _mark_left_out(message, "maps")  # they are fetched when the step is displayed
        return _fit_budget(message)

    def _add_distributions(self, message: dict[str, Any], step: Step, whole: bool) -> None:
        """Put the distributions at the visited places into a step: all of them, or those where a reader looks first."""
        tops = step.tops
        if tops is None:
            return
        places = [int(x) + 1 for x in tops.places]
        rows = range(len(places))
        if not whole:
            refused, path = message["verdict"]["first_reject"], message["verdict"]["path"]
            first = message["nodes"][refused][0] if refused is not None else path[-1]
            rows = range(places.index(first), places.index(first) + 1) if first in places else range(0)
        shown = []
        for i in rows:
            columns = zip(tops.ids[i].tolist(), tops.p[i], tops.q[i], strict=True)
            law = [[token, self.text(token), _single(p), _single(q)] for token, p, q in columns if token >= 0]
            shown.append([places[i], _single(tops.entropy[i]), [_single(x) for x in tops.rest[i]], law])
        if not whole and shown and len(encode(shown)) > LAW:
            shown = []
        message["tops"] = shown
        if len(shown) < len(places):
            _mark_left_out(message, "laws")

    def _add_notes(self, message: dict[str, Any], step: Step, whole: bool) -> None:
        """Put the notes of the parts into a step: all of them, or as many as fit, notes of nodes last."""
        if not (values := self._note_values(step)):
            return
        kept = values if whole else notes.fit_values(self.header, values, BRIEF, nodes=True)
        if kept != values:  # not in the part that always fits
            kept = notes.fit_values(
                self.header, values, min(NOTES, max(BRIEF, BUDGET - len(encode(message)))), nodes=True
            )
        if kept:
            message["notes"] = kept
        if kept != values:
            message["few"] = True

    def _note_values(self, step: Step) -> notes.Values:
        values = noted(self.header, step)
        nodes = 0 if step.draft is None else len(step.draft.tokens)
        return notes.encode_values(self.header, values, nodes, self.text) if values else {}

    def brief(self, step: Step) -> dict[str, Any]:
        """One step without its tree: enough for the text, the clock, the counters and the notes over the steps."""
        message = {
            **self._encode_common(step),
            **encode_canvas(self.header, step, self.text, brief=True),
            "brief": True,
        }
        message |= encode_chain(self.header, step, self._label_tokens, brief=True)
        if kept := notes.fit_values(self.header, self._note_values(step), BRIEF):
            message["notes"] = kept
        return message

    def _encode_common(self, step: Step) -> dict[str, Any]:
        tokens, passes, tried, ok, drafted, accepted, decode = self._sums[step.step]
        read, before = self._read[step.step], None if step.step else self.prefill
        return {
            "kind": "step",
            "i": step.step,
            "n": step.n,
            "t0": step.t_us / 1e6,
            "dt": {
                "draft": step.draft_us / 1e6,
                "verify": step.verify_us / 1e6,
                "commit": step.commit_us / 1e6,
                "cache": step.policy_us / 1e6,
                "all": step.wall_us / 1e6,
            },
            "made": [
                [token, self.text(token), STATUS_OF_ORIGIN.get(origin, "target")]
                for token, origin in zip(step.emitted, step.origins, strict=True)
            ],
            "drafted": step.drafted,
            "refused": 0 if step.trials is None else len(step.trials.ok) - sum(step.trials.ok),
            "kv": [
                encode_cache(self.header, change, read.get(change.lane, 0), before) for change in step.cache
            ],
            "sum": {
                "tokens": tokens,
                "passes": passes,
                "tried": tried,
                "ok": ok,
                "drafted": drafted,
                "accepted": accepted,
                "decode": decode,
            },
            **encode_branches(self.header, step, self.text),
            **self._said[step.step],
            **encode_depth(step, self.header, self._passes) | encode_reference(step, self.text),
            **encode_lanes(self.header, step, self.text),
            **encode_copies(self.header, step),
            **encode_threads(self.header, step, self._label_tokens),
            **encode_machine_load(step.environment),
            **self._costs.encode_step(step),
        }

    def text(self, token: int) -> Piece:
        """A token's text for a view."""
        if (shown := self._shown.get(token)) is None:
            if (piece := self.pieces.get(str(token))) is None:
                return f"<#{token}>"
            shown = self._shown[token] = piece[:LONGEST]
        return shown

    def _label_tokens(self, tokens: list[int]) -> list[list[Any]]:
        return [[token, self.text(token)] for token in tokens]

    def nodes(self, step: Step) -> list[list[Any] | None]:
        """The nodes of a step, all of them, as the class describes."""
        root = self._root_token(step.step)
        nodes: list[list[Any] | None] = [[-1, self.text(root), root, None, None, None, "root"]]
        path = set(step.path or [])
        if step.draft is not None:
            d, tried = step.draft, self._trials(step)
            for i, (token, parent, q) in enumerate(zip(d.tokens, d.parents, d.q, strict=True)):
                row: list[Any] = [parent + 1, self.text(token), token, q]
                if i in tried:
                    trial = tried[i]
                    if i in path:
                        status = "accept"
                    elif trial["ok"]:
                        status = "unreached"
                    else:
                        status = "reject"
                    row = [
                        *row[:3],
                        trial["q"],
                        trial["p"],
                        trial["u"],
                        status,
                        trial["r"],
                        trial["threshold"],
                    ]
                    row += trial["scale"]
                elif i in path:
                    row += [None, None, "accept"]
                nodes.append(row)
        if step.extra is not None:
            last = step.path[-1] + 1 if step.path else 0
            x = step.extra
            status = STATUS_OF_ORIGIN.get(x.origin, "target")
            nodes.append([last, self.text(x.token), x.token, None, x.high - x.low, x.u, status])
        return nodes

    def _trials(self, step: Step) -> dict[int, dict[str, Any]]:
        """Node -> its trial; of several the last. scale: num and den, if they are not r and q"""
        tests = step_trials(self.header, step)
        t = step.trials if tests is None else tests.trials
        if t is None:
            return {}
        none: list[float | None] = [None] * len(t.node)
        num, den = t.num or none, t.den or none
        scale = [[] if a is None and b is None else [a, b] for a, b in zip(num, den, strict=True)]
        columns = zip(t.node, t.p, t.r, t.q, t.u, t.threshold, t.ok, scale, strict=True)
        names = ("p", "r", "q", "u", "threshold", "ok", "scale")
        return {node: dict(zip(names, rest, strict=True)) for node, *rest in columns}

    def _root_token(self, step: int) -> int:
        """The token that a step starts from."""
        return self._last[step - 1] if step else int(self.header.prompt[-1])


def _recorded_machine(header: Header) -> HardwareProfile | None:
    """The machine of a run by its header; None if the header has none that can be read."""
    try:
        return None if header.machine is None else HardwareProfile.from_record(header.machine)
    except Refusal:
        return None


def trace_node(step: Step, node: int) -> int | None:
    """The drafted node of the trace that a view calls `node`; None for the root and for the target's own token."""
    count = 0 if step.draft is None else len(step.draft.tokens)
    return node - 1 if 1 <= node <= count else None


def end_message(end: End) -> dict[str, Any]:
    """Why a run ended, and the notes there, for a view."""
    why = {"kind": "end", "reason": end.reason, "message": end.message, "notes": end.remarks}
    return why | {"steps": end.steps, "tokens": len(end.tokens), "wall": end.wall_us / 1e6}


def _encode_model_summary(spec: dict[str, Any]) -> dict[str, Any]:
    """A view's fields on a model."""
    shown = ("name", "params", "n_layers", "n_kv_heads", "vocab", "fingerprint")
    return {name: spec[name] for name in shown if name in spec}


def _mark_left_out(step: dict[str, Any], what: str) -> None:
    """Mark an omission that views without that field can ignore."""
    if step.get("few") is not True:
        step["few"] = [*step.get("few", []), what]


def _fit_budget(step: dict[str, Any]) -> dict[str, Any]:
    """The step within BUDGET bytes. Parents come before children, so leaving out from the end leaves no orphan."""
    over = len(encode(step)) - BUDGET
    if over > 0:
        over += len(',"cut":true')
    for row in step["kv"]:
        listed = {name: row[name] for name in ("gone", "out", "prompt", "merged") if name in row}
        if over > 0 and (size := len(encode(listed))) > BUDGET // 4:
            for name in listed:
                del row[name]
            row["lost"] = True
            over -= size - len('"lost":true,')
    nodes = step["nodes"]
    for i in range(len(nodes) - 1, 0, -1):
        if over <= 0:
            break
        row = nodes[i]
        if (len(row) > 6 and row[6] != "unreached") or i in step["verdict"]["tried"]:
            continue
        over -= len(encode(row)) - len("null")
        nodes[i] = None
        step["cut"] = True
    return step


def encode(message: dict[str, Any] | list[Any]) -> bytes:
    """A message as JSON: shortest form that keeps every double, no bare surrogates, NaN as null."""
    try:
        return orjson.dumps(message)  # three times as fast; it writes null for NaN
    except orjson.JSONEncodeError:  # a surrogate, a key that is no text, or a whole number above 64 bits
        pass
    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(
            _replace_non_finite(message), ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
    return text.encode("utf-8", "replace")


def _replace_non_finite(value: Any) -> Any:
    """The same data with null instead of numbers that JSON cannot represent."""
    if isinstance(value, dict):
        return {k: _replace_non_finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(v) for v in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value
