"""Wire: what a view is told of a run. The one place where records become what a page draws.

In a trace the root is -1 and the first drafted node 0; on the wire the root is node 0 and every node is one higher.
Nowhere else are indices shifted. A message is plain data: numbers are full doubles, a token's text is a string, or a
list of hex codes where it is only bytes of a character. Times are seconds.
"""

from __future__ import annotations

import json
from typing import Any

from ..engine.trace.events import CacheChange, End, Header, Piece, Prefill, Step
from .style import STATUS_OF_ORIGIN

BUDGET = 4096  # bytes of one step on the wire; what was never reached is left out of larger ones
PROMPT = 512  # tokens of the prompt that a view gets, counted from its end
LONGEST = 4096  # characters of one token


class Wire:
    """Turns the records of one run into messages. `learn` must see every step once, in order; `step` may be asked for
    any of them, in any order.

    head:  model, method, prompt        {"kind": "head", ...}
    step:  one step, with its tree      {"kind": "step", "i": 17, ...}
    brief: the same without the tree, for steps that a reader skips

    A node is [parent, text, token id, q, p, u, status, r, threshold]; r is what was left of p when the node was tried.
    Whatever is missing at the end of a row is null, and its status is then "unreached".
    """

    def __init__(self, header: Header):
        self.header = header
        self.pieces: dict[str, Piece] = dict(header.pieces)
        self.prefill: Prefill | None = None
        self._sums: list[tuple[float, ...]] = []  # per step: the counters after it
        self._last: list[int] = []  # per step: the token that the text ends with after it

    @property
    def count(self) -> int:
        """Steps learnt so far."""
        return len(self._sums)

    def learn(self, record: Prefill | Step) -> None:
        """Take the record into pieces and counters."""
        if isinstance(record, Prefill):
            self.prefill = record
            return
        self.pieces.update(record.pieces or {})
        passes = sum(p.lane == "target" and p.phase == "verify" for p in record.passes)
        tried = record.trials.ok if record.trials is not None else []
        new = (len(record.emitted), passes, len(tried), sum(tried), record.drafted, record.accepted, record.wall_us / 1e6)
        before = self._sums[-1] if self._sums else (0,) * len(new)
        self._sums.append(tuple(a + b for a, b in zip(before, new, strict=True)))
        self._last.append(record.emitted[-1] if record.emitted else self._root(record.step))

    def head(self) -> dict[str, Any]:
        """What stands above all steps."""
        h = self.header
        prompt = h.prompt.tolist()
        return {
            "kind": "head",
            "run": h.run,
            "model": _model(h.model),
            "lanes": {role: _model(spec) for role, spec in h.lanes.items()},
            "method": h.method,
            "lossless": h.lossless,
            "seed": h.seed,
            "max_new": h.max_new_tokens,
            "created": h.created,
            "levels": h.levels,
            "prompt": [[token, self.text(token)] for token in prompt[-PROMPT:]],
            "prompt_tokens": len(prompt),
            "prefill": self.prefill.wall_us / 1e6 if self.prefill is not None else None,
        }

    def step(self, step: Step, *, whole: bool = False) -> dict[str, Any]:
        """One step with its tree. Unless `whole`, it keeps to the BUDGET: nodes that were not reached may be left out
        (null in their place, so that the numbers of the others stay), and "cut" says so."""
        made = self.brief(step)
        del made["brief"]
        made["nodes"] = self._nodes(step)
        path = [0, *(node + 1 for node in step.path or [])]
        refused = [] if step.trials is None else [n for n, ok in zip(step.trials.node, step.trials.ok, strict=True) if not ok]
        made["verdict"] = {
            "path": path,
            "first_reject": refused[0] + 1 if refused else None,
            "tried": [] if step.trials is None else [node + 1 for node in step.trials.node],
        }
        if step.rule is not None:
            made["rule"] = step.rule
        if step.extra is not None:
            made["verdict"]["extra"] = [step.extra.u, step.extra.low, step.extra.high]
        if step.iteration is not None:
            it = step.iteration
            made["iteration"] = {"fixed": it.fixed, "after": self._texts(it.tokens), "before": self._texts(it.before or [])}
        if step.beams is not None:
            b = step.beams
            made["beams"] = {"parents": b.parents, "scores": b.scores, "tokens": self._texts(b.tokens)}
        if step.sampler is not None:
            made["sampler"] = step.sampler
        return made if whole else _fitted(made)

    def brief(self, step: Step) -> dict[str, Any]:
        """One step without its tree: enough for the text, the clock and the counters."""
        tokens, passes, tried, ok, drafted, accepted, decode = self._sums[step.step]
        return {
            "kind": "step",
            "brief": True,
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
            "kv": [_cache(change) for change in step.cache],
            "sum": {
                "tokens": tokens,
                "passes": passes,
                "tried": tried,
                "ok": ok,
                "drafted": drafted,
                "accepted": accepted,
                "decode": decode,
            },
        }

    def text(self, token: int) -> Piece:
        """A token's text for a view."""
        piece = self.pieces.get(str(token), f"<#{token}>")
        return piece[:LONGEST]

    def _texts(self, tokens: list[int]) -> list[list[Any]]:
        return [[token, self.text(token)] for token in tokens]

    def _nodes(self, step: Step) -> list[list[Any] | None]:
        root = self._root(step.step)
        nodes: list[list[Any] | None] = [[-1, self.text(root), root, None, None, None, "root"]]
        path = set(step.path or [])
        if step.draft is not None:
            d, tried = step.draft, _trials(step)
            for i, (token, parent, q) in enumerate(zip(d.tokens, d.parents, d.q, strict=True)):
                row: list[Any] = [parent + 1, self.text(token), token, q]
                if i in tried:
                    trial = tried[i]
                    status = "accept" if i in path else "unreached" if trial["ok"] else "reject"
                    row = [*row[:3], trial["q"], trial["p"], trial["u"], status, trial["r"], trial["threshold"]]
                elif i in path:
                    row += [None, None, "accept"]
                nodes.append(row)
        if step.extra is not None:
            last = step.path[-1] + 1 if step.path else 0
            x = step.extra
            status = STATUS_OF_ORIGIN.get(x.origin, "target")
            nodes.append([last, self.text(x.token), x.token, None, x.high - x.low, x.u, status])
        return nodes

    def _root(self, step: int) -> int:
        """The token that a step starts from."""
        return self._last[step - 1] if step else int(self.header.prompt[-1])


def end_message(end: End) -> dict[str, Any]:
    """Why a run ended, for a view."""
    return {
        "kind": "end",
        "reason": end.reason,
        "message": end.message,
        "steps": end.steps,
        "tokens": len(end.tokens),
        "wall": end.wall_us / 1e6,
    }


def _model(spec: dict[str, Any]) -> dict[str, Any]:
    """What a view shows of a model."""
    shown = ("name", "params", "n_layers", "n_kv_heads", "vocab", "fingerprint")
    return {name: spec[name] for name in shown if name in spec}


def _trials(step: Step) -> dict[int, dict[str, Any]]:
    """Node -> its trial; of several the last."""
    t = step.trials
    if t is None:
        return {}
    columns = zip(t.node, t.p, t.r, t.q, t.u, t.threshold, t.ok, strict=True)
    names = ("p", "r", "q", "u", "threshold", "ok")
    return {node: dict(zip(names, rest, strict=True)) for node, *rest in columns}


def _cache(change: CacheChange) -> dict[str, Any]:
    """One lane's cache after a step."""
    made = {
        "lane": change.lane,
        "appended": change.appended,
        "held": change.held,
        "bytes": change.held_bytes,
        "full": change.full_bytes,
        "evicted": change.evicted_count,
    }
    if change.evicted_all is not None and 0 < len(change.evicted_all) <= 64:
        made["gone"] = change.evicted_all.tolist()
    return made


def _fitted(step: dict[str, Any]) -> dict[str, Any]:
    """The step within BUDGET bytes. Parents stand before children, so leaving out from the end leaves no orphan."""
    over = len(encode(step)) - BUDGET
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
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(message), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    """The same data with null in the place of numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value
