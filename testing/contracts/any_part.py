"""What every part has to keep, whatever its kind: words, bounds, records, and runs that agree with themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from decodescope.engine.core.component import build, registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.session.method import Method, MethodError, strategy_using
from decodescope.engine.trace import check
from decodescope.testing import toys

Settings = dict[str, Any]
LEVELS = ("summary", "decisions", "full")
COUNT = 24  # tokens of a run


def isolated_method(kind: str, name: str, settings: Settings, **more: Any) -> Method:
    """A method that differs from plain decoding in this part and in the parts that it needs. more: further parts by kind"""
    strategy = toys.router_strategy(name) if kind == "router" else strategy_using(kind)
    drafts = (
        {"drafter": ("draft_model", {"max_draft_tokens": 3})} if kind in ("schedule", "acceptance") else {}
    )
    return toys.method(**{"strategy": strategy, **drafts, kind: (name, settings), **more})


def says_what_it_is(kind: str, name: str, settings: Settings) -> None:
    """It has a title, a source and a docstring; its record in a trace's header makes the same part again."""
    cls = registry(kind)[name]
    assert cls.title, "it has no title"
    assert cls.source, "it has no source: the paper and section, or the repository"
    assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("), "its class has no docstring"
    part = build(kind, name, settings)
    assert part.name == name and part.kind == kind, f"it is called {part.name!r}, and its file {name!r}"
    assert build(kind, name, part.knobs()) == part, "its record does not make the same part again"


def knobs_have_help_and_bounds(kind: str, name: str, settings: Settings) -> None:
    """Each knob has help; a number has bounds or choices, its default is one of these, any other is refused in a sentence."""
    for knob in registry(kind)[name].params():
        where = f"{name}.{knob.name}"
        assert knob.help and not knob.help.endswith("."), f"{where} needs a help text without a full stop"
        assert knob.check(knob.default, name) == knob.default, f"the default of {where} is refused"
        assert knob.parse(knob.spell(knob.default), name) == knob.default, (
            f"the default of {where} cannot be typed"
        )
        if knob.type not in (int, float) or knob.choices:
            continue
        assert knob.low is not None and knob.high is not None and knob.low < knob.high, (
            f"{where} has no bounds"
        )
        for value in (knob.low - 1, knob.high + 1):
            try:
                build(kind, name, {knob.name: value})
            except ParamError as error:
                assert "must lie in" in str(error), f"the refusal of {where} = {value} says {error}"
            else:
                raise AssertionError(f"{where} = {value} lies outside of its bounds, and is taken")


def runs_agree_at_every_level(kind: str, name: str, settings: Settings) -> None:
    """A run at each recording level has the same text, and its trace agrees with itself."""
    texts = []
    for level in LEVELS:
        session = toys.decode(isolated_method(kind, name, settings), count=COUNT, level=level, seed=3)
        report = check(toys.session_trace(session))
        assert report.ok, str(report)
        assert session.end is not None
        texts.append(session.end.tokens)
    assert texts[0] == texts[1] == texts[2], "the recording level changes the text"


def same_seed_gives_the_same_trace(kind: str, name: str, settings: Settings) -> None:
    """Two sampled runs with one seed have one content hash: all randomness comes from the generator that is passed in."""
    method = isolated_method(kind, name, settings)
    with suppress(MethodError):  # some work with greedy choices alone
        drawn = isolated_method(
            kind, name, settings, **({} if kind in ("sampler", "strategy") else {"sampler": "temperature"})
        )
        toys.decode(drawn, count=1)
        method = drawn
    ends = [toys.decode(method, count=COUNT, seed=11).end for _ in range(2)]
    hashes = {end.content_hash for end in ends if end is not None}
    assert len(hashes) == 1, "two runs with the same seed differ: draw from the chance that is passed in"


def text_agrees_with_its_exactness(kind: str, name: str, settings: Settings) -> None:
    """A method that calls itself lossless writes the greedy text of plain decoding; any other says why not."""
    method = isolated_method(kind, name, settings)
    session = toys.decode(method, count=COUNT)
    assert session.header.exactness == method.exactness, "the header states another exactness than the method"
    if kind != "sampler" and method.lossless:
        due = toys.cached_greedy_text(toys.strategy_target(method.strategy), toys.PROMPT, COUNT)
        assert session.end is not None and session.end.tokens == due, (
            f"it calls itself lossless, writes {session.end and session.end.tokens}, and plain decoding writes {due}"
        )
    part: Any = registry(kind)[name]
    if kind in ("strategy", "acceptance") and not getattr(part, "lossless", True):
        assert part.changes, "a part that is not lossless says in `changes` why the text may differ"


def details_are_recorded_as_declared(kind: str, name: str, settings: Settings) -> None:
    """A part that declares details records them in a run, and only those."""
    declared = getattr(registry(kind)[name], "details", {})
    steps = toys.session_trace(toys.decode(isolated_method(kind, name, settings), count=COUNT)).steps
    seen = {detail.name for step in steps for detail in step.details or ()}
    assert not declared or seen & declared.keys(), (
        f"it declares {', '.join(declared)}, and records none of them"
    )
