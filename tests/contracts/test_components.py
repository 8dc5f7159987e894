"""The static requirements for every registered component: words, ranges, defaults, and refusals that help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import toys

from decodescope.engine import Method, ParamError, load, run
from decodescope.engine.core.component import KINDS, build, registry

ALL = [(kind, name) for kind in KINDS for name in registry(kind)]
KNOBS = [(kind, name, p) for kind, name in ALL for p in registry(kind)[name].params()]


def ids(x: object) -> str:
    return x if isinstance(x, str) else getattr(x, "name", str(x))


def test_the_page_of_methods_names_them_all_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert not [name for _, name in ALL if f"`{name}`" not in page]
    rows = [
        re.findall(r"`(\w+)`", line.split("|")[1]) for line in page.splitlines() if line.startswith("| `")
    ]
    assert not {x for row in rows for x in row} - {name for _, name in ALL}


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_component_says_what_it_is_and_works_as_it_comes(kind: str, name: str) -> None:
    cls = registry(kind)[name]
    assert cls.title and cls.source and cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "the dataclass wrote its own docstring"
    made = cls()
    assert made.name == name and made.kind == kind
    assert build(kind, name, made.knobs()) == made, (
        "what a trace's header records makes the same component again"
    )
    spec = toys.strategy_target(made).spec if kind == "strategy" else toys.SPEC
    assert made.refuse(Method(), spec) is None or name in (
        "jacobi",
        "aligned",
        "space",
        "s3d",  # these two: their target must have learnt a mask token
        "references",  # it has nothing to compare with until pairs are given
        "deco_g",  # it has nothing to weigh with until a file is named
    )


@pytest.mark.parametrize(("kind", "name", "p"), KNOBS, ids=ids)
def test_knob_has_help_and_bounds_and_its_default_lies_within(kind: str, name: str, p) -> None:
    assert p.help and not p.help.endswith(".")
    if p.type in (int, float):
        assert p.low is not None and p.high is not None and p.low < p.high
        assert build(kind, name, {p.name: p.low}) and build(kind, name, {p.name: p.high})
    assert p.check(p.default, name) == p.default
    assert p.parse(p.spell(p.default), name) == p.default, "a default can be typed on a command line"
    if p.item is not None:
        assert (
            p.type is tuple
            and type(p.default) is tuple
            and (p.item is str or p.low < p.high)
            and p.least <= len(p.default)
        )
        assert p.record(p.default) == p.spell(p.default), "a list stands in a record as it is typed"


@pytest.mark.parametrize(("kind", "name", "p"), [x for x in KNOBS if x[2].type in (int, float)], ids=ids)
def test_number_outside_its_range_is_refused_with_the_range(kind: str, name: str, p) -> None:
    for value in (p.low - 1, p.high + 1):
        with pytest.raises(ParamError) as refusal:
            build(kind, name, {p.name: value})
        assert str(refusal.value) == f"{name}.{p.name} = {p.type(value)!r}: must lie in {p.range}."
        with pytest.raises(ParamError, match="must lie in"):
            build(kind, name, {p.name: str(value)})
    for value in ("many", None, True, float("nan"), float("inf"), [1], *([1.5] if p.type is int else [])):
        with pytest.raises(ParamError, match=rf"^{name}\.{p.name} = .*: must be (auto or )?a .*number\.$"):
            build(kind, name, {p.name: value})


@pytest.mark.parametrize(
    ("kind", "name", "p"), [x for x in KNOBS if x[2].type in (bool, str, tuple)], ids=ids
)
def test_word_switch_or_list_of_the_wrong_type_is_refused(kind: str, name: str, p) -> None:
    wrong = {bool: [1, "maybe", None], str: [3, None, ["a"]], tuple: [3, None, {"a": 1}]}[p.type]
    for value in wrong + (["never heard of"] if p.choices else []):
        with pytest.raises(ParamError, match=rf"^{name}\.{p.name} = .*: (must be|choose one of) .*\.$"):
            build(kind, name, {p.name: value})


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_name_or_knob_is_refused_with_what_there_is(kind: str) -> None:
    first = next(iter(registry(kind)))
    with pytest.raises(ParamError, match=f"Did you mean '{first}'") as refusal:
        build(kind, first + "x")
    assert all(name in str(refusal.value) for name in registry(kind))
    with pytest.raises(ParamError, match="has no knob 'bogus'"):
        build(kind, first, {"bogus": 1})


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_components_share_no_state(kind: str, name: str) -> None:
    """A run leaves its recipe unchanged, so that the next run starts the same way."""
    method = Method.from_names({kind: name})
    before = repr(method)
    if kind == "strategy":
        method = toys.method(strategy=name)
        before = repr(method)
    if kind == "router":
        method = toys.method(
            strategy=toys.router_strategy(name), router=(name, toys.settings_of(kind, name)[0])
        )
        before = repr(method)
    if name == "deco_g":
        method = toys.method(sampler=(name, toys.settings_of(kind, name)[0]))
        before = repr(method)
    if kind == "drafter" and name == "token_recycling":
        method = toys.method(drafter=(name, {"nodes": "8"}))
        before = repr(method)
    if kind == "drafter" and name in ("space", "s3d"):
        method = toys.method(drafter=(name, {"mask_token": 3}))
        before = repr(method)
    if kind == "schedule":
        method = toys.method(drafter="draft_model", schedule=name)
        before = repr(method)
    if kind == "unmasking":
        method = toys.method(strategy="masked", unmasking=name)
        before = repr(method)
    toys.decode(method, count=6)
    assert repr(method) == before
    assert not [x for part in method.parts().values() for x in vars(part) if x.startswith("_")]


def test_public_names_are_functions_whatever_was_imported_before() -> None:
    """Files of the same name are next to them: importing such a file must not replace the function with the module."""
    import decodescope.engine.session.load
    import decodescope.engine.session.run

    assert (
        callable(load)
        and callable(run)
        and callable(decodescope.engine.load)
        and callable(decodescope.engine.run)
    )
