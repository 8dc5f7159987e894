"""Declared details: unique names, readable forms, and a toy run whose records the forms derive and describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import label_model
import pytest
import toys

from decodescope.engine.core.component import KINDS, registry
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.detail_checks.details import CHECKS, OVER_STEPS, UNKNOWN, tally_reading
from decodescope.engine.trace.details.consistency import validate_forms
from decodescope.engine.trace.details.declarations import CanvasForm, Form, TallyForm
from decodescope.lab.decision.block import explain_block
from decodescope.lab.decision.tally import find_tally

DECLARED: dict[tuple[str, str], dict[str, Form]] = {
    (kind, name): forms
    for kind in KINDS
    for name, cls in registry(kind).items()
    if (forms := getattr(cls, "details", {}))
}


def labelled() -> list[Trace]:
    """Labels with identical mentions, by a model that counts them."""
    knobs = {
        "labels": "\n".join(label_model.COUNTS),
        "count_template": label_model.COUNT,
        "mention_template": label_model.MENTION,
        "max_mention_tokens": 6,
    }
    method = toys.method(strategy=("label_parallel", knobs))
    session = Session(label_model.model(likes=True), method, label_model.PROMPT, max_new_tokens=80)
    return [toys.finish_session(session).sink]


def tagged() -> list[Trace]:
    """Drafts whose places receive all tags."""
    method = toys.method(strategy="edit_tags")
    sessions = [
        Session(toys.tagging_target(seed), method, toys.PROMPT, max_new_tokens=24) for seed in range(4)
    ]
    return [toys.finish_session(session).sink for session in sessions]


# further runs for parts that record little on the toy model
OTHERS: dict[str, Callable[[], list[Trace]]] = {"label_parallel": labelled, "edit_tags": tagged}


@cache
def runs(kind: str, name: str) -> list[Trace]:
    """A run of a component in each of its settings."""
    strategy = {"strategy": toys.router_strategy(name)} if kind == "router" else {}
    methods = [toys.method(**strategy, **{kind: (name, knobs)}) for knobs in toys.settings_of(kind, name)]
    others = OTHERS[name]() if name in OTHERS else []
    return [*(toys.decode(method, count=24).sink for method in methods), *others]


def written(ids: Any) -> str:
    return " ".join(map(str, ids))


def readings(kind: str, name: str) -> Iterator[Any]:
    """All tallies of its runs, with their forms, and their `place`: header, step and detail."""
    for trace in runs(kind, name):
        for step in trace.steps:
            for detail in step.details or ():
                if (read := tally_reading(trace.header, step, detail, written)) is not None:
                    read.place = trace.header, step, detail
                    yield read


def test_the_name_of_a_detail_is_that_of_one_declaration() -> None:
    assert len(DECLARED) > 4
    known: dict[str, Form] = {}
    for forms in DECLARED.values():
        for name, form in forms.items():
            assert known.setdefault(name, form) is form, f"{name} is declared twice, in two ways"
    assert not {one for kind in KINDS for one in registry(kind)} & known.keys(), "a detail is no component"


@pytest.mark.parametrize(("kind", "name"), DECLARED)
def test_declarations_can_be_read_and_their_checks_are_known(kind: str, name: str) -> None:
    forms = DECLARED[kind, name]
    validate_forms(forms)
    for form in forms.values():
        # a canvas form describes the choice of another part, and its formulas name that part's knobs
        assert form.title and (form.part == kind or isinstance(form, CanvasForm))
        assert not form.check or form.check in CHECKS or form.check in OVER_STEPS
        said = [one.text for one in form.sentences()]
        if isinstance(form, TallyForm):  # the other forms assemble parts of sentences
            assert all(said) and not any(text.endswith((" ", ",")) for text in said)


@pytest.mark.parametrize(("kind", "name"), DECLARED)
def test_what_a_toy_run_records_is_derived_again_and_drawn(kind: str, name: str) -> None:
    seen, rows = set[str](), 0
    for trace in runs(kind, name):
        report = check(trace)
        assert report.ok and not report.counts[UNKNOWN], str(report)
        for step in trace.steps:
            seen |= {one.name for one in step.details or ()}
            forms = [DECLARED[kind, name].get(one.name) for one in step.details or ()]
            if not any(isinstance(form, TallyForm) and form.beside is None for form in forms):
                continue
            card, told = find_tally(trace.header, step, written), explain_block(trace, step)
            assert card is not None and card.says and card.lines and all(x.is_consistent for x in card.rows)
            assert told.agrees, str(told)
            rows += len(card.rows)
    due = DECLARED[kind, name].keys()  # a router's runs use only one strategy
    assert seen and (seen == due or (kind == "router" and seen < due)), (
        "the settings have to show all details"
    )
    forms = DECLARED[kind, name].values()
    assert rows or not any(isinstance(x, TallyForm) and x.beside is None for x in forms) or kind == "router"


@pytest.mark.parametrize(("kind", "name"), DECLARED)
def test_every_row_has_a_name_and_a_word_and_every_way_to_name_one_is_taken(kind: str, name: str) -> None:
    forms = [x for x in DECLARED[kind, name].values() if isinstance(x, TallyForm)]
    due, said = {one.text for form in forms for one in form.row}, set[str]()
    for read in readings(kind, name):
        for index in read.listed_rows:
            scope = read.rows[index]
            taken = next((one for one in read.form.row if scope.say(one)), None)
            assert taken is not None and read.words(index), (read.detail.name, read.detail.row(index))
            said.add(taken.text)
            unread = tally_reading(*read.place, None).rows[index]  # without a tokenizer the ids have no texts
            said |= {one.text for one in read.form.row if unread.say(one)} & due
    # a router's runs use one strategy, and do not show every way to name a row
    assert said == due or (kind == "router" and said < due)
