"""Trees: the message fields on the texts that a step followed, as a tree that grew within it or that grows over steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from decodescope.engine.trace.detail_checks.details import tally_reading as tally_reading
from decodescope.engine.trace.detail_checks.trees import declared_trees, tree_reading
from decodescope.engine.trace.details.declarations import Growth, Sentence, TreeForm
from decodescope.engine.trace.details.tree import TreeReading
from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.engine.trace.records.pieces import join
from decodescope.engine.trace.values.formula import formula, relation, sentence

ROOM = 1024  # bytes of the tree of a step that is not requested
LONGEST = 96  # characters of a text's continuation after its node
LEFT = 6  # maximum number of nodes that were left: the best of them

Text = Callable[[int], Piece]


def encode_tree_forms(header: Header) -> dict[str, dict[str, Any]]:
    """name -> the header's declaration of a tree, with parsed formulas and sentences.
    A sentence is [its parts, what must be given, the relation that must hold or null]."""
    return {name: _encode_form(form) for name, form in header.details.items() if isinstance(form, TreeForm)}


def _encode_form(form: TreeForm) -> dict[str, Any]:
    outcomes = {
        word: {"fate": x.fate, "words": _encode_sentences(x.words), "shown": x.shown}
        for word, x in form.outcomes.items()
    }
    return {
        "noun": form.noun,
        "nouns": form.nouns,
        "title": form.title,
        "number": formula(form.number) if form.number else None,
        "group": form.group,
        "won": form.won,
        "judged": bool(form.judged),
        "overview": form.overview,
        "root": form.root,
        "outcomes": outcomes,
        "figures": [
            [_encode_sentences([Sentence(x.word)]), x.name, _encode_sentences(x.says)] for x in form.figures
        ],
        "growth": None if form.growth is None else _encode_growth(form.growth),
        "short": _encode_sentences(form.short or form.worth),
        **{
            name: _encode_sentences(getattr(form, name))
            for name in ("worth", "about", "card", "why", "briefly")
        },
    }


def _encode_growth(growth: Growth) -> dict[str, Any]:
    return {
        "closed": growth.closed,
        "score": formula(growth.score),
        "terms": [[x.word, formula(x.value), x.form, x.tried, x.bar] for x in growth.terms],
        "says": _encode_sentences([Sentence(growth.says)]),
        "scale": growth.scale,
    }


def _encode_sentences(sentences: Iterable[Sentence]) -> list[list[Any]]:
    return [[sentence(x.text), x.given, relation(x.where) if x.where else None] for x in sentences]


def encode_tree(header: Header, step: Step, text: Text, whole: bool) -> dict[str, Any]:
    """tree: of the first tree that grew within the step {"name", "says", "at": where a reader looks first, "count": its
    nodes with a token, "parents", "tokens": [id, text] or null, "outcomes", "columns": name -> numbers, "values", "knobs"
    that its declaration names, "offers": [[id, text, number], ...] of each node, "rest": what follows it in its text}, or
    nothing. Unless `whole`, a tree above ROOM is left out, and "few" says so."""
    for detail, form in declared_trees(header, step):
        if detail.earlier or not len(detail):
            continue
        reading = tree_reading(header, step, detail, form)
        message = _encode_tree_head(reading)
        message |= {"at": _first_node(header, step, reading), "count": reading.number_of(len(reading) - 1)}
        more = _encode_grown_tree(reading, text)
        if whole or _json_size(more) <= ROOM:
            return {"tree": message | more}
        return {"tree": message, "few": True}
    return {}


def encode_branches(header: Header, step: Step, text: Text) -> dict[str, Any]:
    """branches: of the first tree that grows over steps {"name", "says", "values", "knobs", and by fate, "open", "ended" and
    "left", {"parents": among the open ones of the step before, "tokens", "outcomes", "columns"}}, or nothing; of those that
    were left the best LEFT."""
    for detail, form in declared_trees(header, step):
        if detail.earlier:
            reading = tree_reading(header, step, detail, form)
            return {"branches": _encode_tree_head(reading) | _nodes_by_fate(reading, text)}
    return {}


def max_tree_node_number(header: Header, step: Step) -> int:
    """The highest number that a view gives to a node of the trees of a step."""
    most = 0
    for detail, form in declared_trees(header, step):
        reading = TreeReading(detail, form, {}, ())
        most = max(
            most, len(reading.nodes_by_fate("open")) if detail.earlier else reading.number_of(len(detail) - 1)
        )
    return most


def _json_size(part: Mapping[str, Any]) -> int:
    return len(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _encode_tree_head(reading: TreeReading) -> dict[str, Any]:
    """Name and clause of a tree, its values, and the knobs that its declaration names."""
    form = reading.form
    values = {name: x for name, x in reading.values.items() if isinstance(x, int | float | str)}
    own = {x.name for x in form.columns} | {*values}
    knobs = {
        x: reading.knobs[x]
        for x in sorted(_form_names(form) - own)
        if isinstance(reading.knobs.get(x), int | float)
    }
    more = {name: part for name, part in (("values", values), ("knobs", knobs)) if part}
    count = (
        len(reading.nodes_by_fate("open")) if reading.detail.earlier else reading.number_of(len(reading) - 1)
    )
    says = reading.whole_scope.say_first(form.says) or f"{count} {form.noun if count == 1 else form.nouns}"
    return {"name": reading.detail.name, "says": says} | more


def _form_names(form: TreeForm) -> set[str]:
    """All names in the formulas and sentences of a declaration."""
    names: set[str] = set()
    for text in form.formulas():
        names |= _formula_names(formula(text))
    for text in form.all_relations():
        left, _, right = relation(text)
        names |= _formula_names(left) | _formula_names(right)
    for one in form.sentences():
        parts = (part[0] for part in sentence(one.text) if not isinstance(part, str))
        names |= {*one.given}.union(*map(_formula_names, parts))
    return names


def _formula_names(part: Any) -> set[str]:
    """The names in a formula."""
    if isinstance(part, str):
        return {part}
    return set().union(*map(_formula_names, part[1:])) if isinstance(part, list) else set()


def _number_columns(reading: TreeReading) -> list[str]:
    """The columns of numbers for each node, except those that follow from growing the tree again."""
    growth = reading.form.growth
    follow = () if growth is None else (growth.visits, growth.values)
    held = reading.detail.columns
    return [
        x.name for x in reading.form.columns if x.type == "number" and x.name in held and x.name not in follow
    ]


def _nodes_by_fate(reading: TreeReading, text: Text) -> dict[str, Any]:
    """The nodes of a step by their fate."""
    columns, numbers = reading.detail.columns, _number_columns(reading)
    shown = {
        fate: [x for x in reading.nodes_by_fate(fate) if reading.outcomes[x].shown]
        for fate in ("open", "ended", "left")
    }
    worth = {node: reading.number(node) for node in shown["left"]}
    shown["left"] = sorted(shown["left"], key=lambda node: -(worth[node] or 0.0))[:LEFT]
    message = {}
    for fate, nodes in shown.items():
        if not nodes and fate != "open":
            continue
        message[fate] = {
            "parents": [reading.detail.parents[node] for node in nodes],
            "tokens": [_encode_token(reading, node, text) for node in nodes],
            "outcomes": [columns["outcome"][node] if "outcome" in columns else "" for node in nodes],
            "columns": {name: [columns[name][node] for node in nodes] for name in numbers},
        }
    return message


def _encode_token(reading: TreeReading, node: int, text: Text) -> list[Any] | None:
    token = reading.token(node)
    return None if token is None else [token, text(token)]


def _first_node(header: Header, step: Step, reading: TreeReading) -> int:
    """Where a reader looks first: the node that its tally names, else the last node on the path of the text, else 1."""
    tally = None if reading.judged is None else tally_reading(header, step, reading.judged)
    if tally is not None and tally.form.at and (at := tally.whole_scope.value(tally.form.at)) is not None:
        return int(at)
    nodes = [node for node in range(len(reading)) if step.emitted[: len(own := reading.tokens(node))] == own]
    return max(1, max((reading.number_of(node) for node in nodes), default=1))


def _encode_grown_tree(reading: TreeReading, text: Text) -> dict[str, Any]:
    """A tree that grew within a step, node by node."""
    nodes = range(len(reading))
    columns = reading.detail.columns
    growth = reading.form.growth
    judged = reading.judged
    numbers = {name: columns[name] for name in _number_columns(reading)}
    rest = [""] * len(reading)
    if judged is not None:
        numbers |= {
            name: [None, *column]
            for name, column in judged.columns.items()
            if all(isinstance(x, int | float) for x in column)
        }
        for node, tokens in enumerate(judged.columns.get(reading.form.text, ()), 1):
            behind = (tokens or [])[len(reading.path(node)) :][:LONGEST]
            rest[node] = join(behind, {x: text(x) for x in behind})[:LONGEST]
    message = {
        "parents": reading.detail.parents,
        "tokens": [_encode_token(reading, node, text) for node in nodes],
        "outcomes": columns.get("outcome", [""] * len(reading)),
        "columns": numbers,
        "rest": rest,
    }
    if growth is not None:
        rows = zip(columns[growth.candidates], columns[growth.priors], strict=True)
        message["offers"] = [[[x, text(x), p] for x, p in zip(*row, strict=True)] for row in rows]
    return message
