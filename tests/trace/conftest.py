"""Small traces made without a model: their numbers are chosen so that `check` finds them consistent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from decodescope.engine.core.component import registry
from decodescope.engine.session.method import Method
from decodescope.engine.trace import End, Header, Prefill, Step, TraceWriter
from decodescope.engine.trace.details.looks import Look
from decodescope.engine.trace.details.shapes import (
    CanvasDetail,
    MatrixDetail,
    TallyDetail,
    ThreadsDetail,
    TreeDetail,
)
from decodescope.engine.trace.records.choices import Choice
from decodescope.engine.trace.records.events import (
    Begun,
    CacheChange,
    DraftTops,
    DraftTree,
    Ended,
    Environment,
    Exit,
    Explored,
    Extra,
    Fields,
    Pass,
    Tops,
    Trials,
    Veto,
)

VOCAB = 50
PROMPT = 7


def header(rule: str = "lossless", **more: Any) -> Header:
    """Make a header as a session writes it; the header says nothing of a rule that does not exist."""
    model = {"name": "toy", "vocab": VOCAB, "n_layers": 2, "n_kv_heads": 2}
    method = {"strategy": {"name": "draft_verify"}, "acceptance": {"name": rule}}
    pieces = {"1": "a", "2": ["e2"], "3": ["82", "ac"], "4": " b"}
    known = {x: kind.telling for x, kind in registry("acceptance").items() if x == rule}
    said = Method.from_names({"acceptance": rule} if known else {}).describe_parts()
    told = {"parts": {kind: said[kind] for kind in method}, "tellings": known, **more}
    return Header(model, method, np.arange(1, PROMPT + 1, dtype="<i4"), 11, pieces=pieces, run="r1", **told)


def prefill() -> Prefill:
    return Prefill(PROMPT, [Pass("target", "prefill", PROMPT, 0, 90.5)], [change(PROMPT, PROMPT)], 90.5)


def change(appended: int, held: int, **more: Any) -> CacheChange:
    return CacheChange("target", appended, held, 64 * held, 64 * held, **more)


def plain_step(k: int, n: int) -> Step:
    """A step of one token without a draft."""
    extra = Extra(k % VOCAB, "target")
    return Step(
        k, n, 10.0 * k, 9.5, [extra.token], ["target"], cache=[change(1, n + 1)], path=[], extra=extra
    )


def drafted_step(k: int, n: int) -> Step:
    """A drafted step with the tree 0 - (1, 2): node 0 is accepted, 1 and 2 are refused, a residual token follows."""
    p, q = [0.5, 0.1, 0.25], [0.8, 0.4, 0.2]
    left = 0.05 + 0.2 + 0.1  # after node 0: the sum of max(0, p - q) over tokens 10 and 20 and over the rest
    r = [*p[:2], (p[2] - q[2]) / left]
    return Step(
        k,
        n,
        10.0 * k,
        9.5,
        [8, 20],
        ["accepted", "residual"],
        drafted=3,
        accepted=1,
        passes=[Pass("target", "verify", 4, n, 7.25)],
        cache=[change(2, n + 2)],
        path=[0],
        draft=DraftTree([8, 9, 10], [-1, 0, 0], q, "iid", [0.3, 0.2, 0.9], "toy", {"span": 3}),
        trials=Trials(
            [0, 1, 2],
            p,
            r,
            q,
            [0.2, 0.6, 0.9],
            [a / b for a, b in zip(r, q, strict=True)],
            [True, False, False],
        ),
        extra=Extra(20, "residual", 0.4, 0.3, 0.5),
        tops=Tops(
            places=np.array([-1, 0], "<i4"),
            ids=np.array([[8, 20, -1], [9, 10, 20]], "<i4"),
            p=np.array([[0.5, 0.25, 0], [0.1, 0.25, 0.5]], "<f4"),
            q=np.array([[0.8, 0.1, 0], [0.4, 0.2, 0.3]], "<f4"),
            rest=np.array([[0.25, 0.1, 0.15], [0.15, 0.1, 0.1]], "<f4"),
            entropy=np.array([1.0, 1.25], "<f4"),
        ),
        pieces={"8": "x", "20": "<script>"},
    )


def everything_step(k: int, n: int) -> Step:
    """A step that fills every field of the schema, whether it makes sense or not."""
    step = drafted_step(k, n)
    step.rule = {"w": [1.0, 0.5], "deep": {"array": np.arange(3, dtype="<f8"), "none": None}}
    step.sampler = {"mu": 4.25}
    step.exits = [Exit(1, "confidence", [[0.0, 0.5, 0.9], [1.0, 0.95, 0.9]], best=[3, 4], rows=[1, 0])]
    step.looks = [Look("law", "target", 2), Look("net", "draft", 1, [4, 2])]
    terms = {"p": [0.5, 0.25, 0.0], "q": [0.25, 0.5, 0.0]}
    choice = Choice([4, 5, 6], 0, terms, {"p": 1.0, "q": -0.5}, [0.375, 0.0, None], {"p": 0.125})
    step.choices, step.law = [choice] * len(step.emitted), {"gap": [0.5, 0.25]}
    step.notes = {"mass": 0.5, "prefixes": 3}
    losses = np.array([[0.5, 0.75], [2.0, np.nan]], "<f4")
    step.details = [
        TallyDetail("unit", {"token": [6, 7], "p": [0.5, None], "outcome": ["taken", "bar"]}, {"bar": 0.3}),
        MatrixDetail("spans", losses, {"token": [4, 5]}, {"size": [1, 2]}, [[0, 1, "best"]], {"gap": None}),
        TreeDetail("texts", [0, 0], {"token": [3, 4], "score": [-0.5, None]}, {"why": "full"}, True),
        CanvasDetail(
            *("row", 5, 3, [5, 8], np.arange(5, 8, dtype="<i4"), np.array([6, 7, 8], "<i4"), [5, 6]),
            *([6, 7], ["final", "final"], None, {"guess": np.array([6, 1, 1], "<i4")}, {"count": 2}),
        ),
        ThreadsDetail("threads", [0, 1], [4, 5], [Begun(2, 0, 3, [6])], [Ended(1, "stop_token")]),
    ]
    step.details.append(
        CanvasDetail(
            *("canvas", 9, 4, [9, 11], np.array([9, 10], "<i4"), np.array([3, 4], "<i4")),
            *([9], [3], ["sure"], np.array([0.5, 0.25], "<f4")),
            columns={"bars": np.array([0.5, 0.5], "<f4"), "order": np.array([0, 1], "<i4")},
            values={"note": "x"},
            count=1,
            anchors=[9],
            reopened=[9],
            cache="dual",
            stale=2,
            edge=10,
            cut=10,
            explored=Explored(
                *(9, [3, 5], np.array([0.5, 0.25], "<f4"), np.array([10], "<i4")),
                *(np.array([[4], [6]], "<i4"), np.array([[0.25], [0.5]], "<f4")),
                *([0, 1], np.array([-0.7, -0.4], "<f8"), 1),
            ),
            standins=[[9, 3]],
            vetoes=[Veto(9, 4), Veto(10, 6, True)],
            witness=[3, 4],
            terminals={'"a"': [3, 4], "/[b]/": []},
        )
    )
    step.fields = Fields(
        [0, 1],
        np.linspace(0, 1, 24, dtype="<f2").reshape(1, 2, 1, 3, 4),
        np.zeros((1, 2, 4), "<i4"),
        np.ones((3, 3), "<f4"),
    )
    step.draft_tops = DraftTops(
        np.array([-1], "<i4"),
        np.array([[8, 7, -1]], "<i4"),
        np.array([[-0.5, -1.0, -np.inf]], "<f4"),
        np.array([1], "<i4"),
        np.array([-0.5], "<f4"),
    )
    step.tie = [[1.0, 0.001]]
    step.forced = [0]
    step.environment = Environment(2, 1, {"1": [900.0, 2500.0], "2": [4000.0, 8000.0]}, 61.5, 4.1, 4)
    mass = np.random.default_rng(0).integers(0, 4, (2, 2, 3000)).astype("|u1")
    step.cache = [
        change(2, n + 1, evicted_count=1, evicted_all=np.array([0], "<i4"), freed=[[3]]),
        CacheChange("draft", 2, n, 64, 64, 1, None, np.array([[0, 1, 2]], "<i4"), mass),
    ]
    step.passes[0].instrumented = True
    step.passes[0].attn = step.passes[0].ffn = step.passes[0].propagated = 2
    return step


def write(path: Path, steps: list[Step], end: End | None = None, head: Header | None = None) -> Path:
    """Write these steps as a sealed trace."""
    with TraceWriter(path, head or header()) as writer:
        writer.write(prefill())
        for step in steps:
            writer.write(step)
        tokens = [token for step in steps for token in step.emitted]
        return writer.seal(end or End("max_new_tokens", tokens, len(steps)))


def steps(kinds: str) -> list[Step]:
    """Make a run of plain ("p") and drafted ("d") steps."""
    made: list[Step] = []
    n = PROMPT
    for k, kind in enumerate(kinds):
        made.append({"p": plain_step, "d": drafted_step, "e": everything_step}[kind](k, n))
        n += len(made[-1].emitted)
    return made


@pytest.fixture
def toy() -> SimpleNamespace:
    """The functions of this file, as one object."""
    makers: dict[str, Callable[..., Any] | int] = {
        f.__name__: f
        for f in (header, prefill, change, plain_step, drafted_step, everything_step, write, steps)
    }
    return SimpleNamespace(**makers, prompt=PROMPT, vocab=VOCAB)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A sealed trace of four steps."""
    return write(tmp_path / "small.dstrace", steps("pdpd"))
