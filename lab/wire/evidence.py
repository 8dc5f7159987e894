"""Evidence: the evidence of an acceptance rule, and of a header's details, parsed for a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from decodescope.engine.trace.details.declarations import CanvasForm, Sentence, ThreadsForm
from decodescope.engine.trace.details.scope import FormulaScope
from decodescope.engine.trace.records.events import Header
from decodescope.engine.trace.records.evidence import Telling
from decodescope.engine.trace.values.formula import formula, relation, sentence


def encode_evidence(telling: Telling) -> dict[str, Any]:
    """The evidence of an acceptance rule, as a card needs it, without the longer texts for notebooks.
    A formula is a number, a name, or a list: an operation and its operands. A sentence is a list of words and of [formula,
    form]."""
    also = telling.also
    return {
        "num": telling.num,
        "den": telling.den,
        "title": telling.title,
        "path": telling.path,
        "rest": telling.rest,
        "left": telling.left,
        "likeliest": telling.likeliest,
        "also": None if also is None else [formula(also.value), formula(also.bound)],
        "columns": {x.name: x.per for x in telling.columns},
        "relations": [[*relation(x.holds), x.within, x.given] for x in telling.relations],
        "numbers": [[x.word, _sentence_parts(x.symbol), formula(x.value)] for x in telling.numbers],
        "card": [_sentence_parts(x) for x in telling.card],
    }


def _sentence_parts(text: str) -> list[Any]:
    """A sentence in parts. A page writes a number without a form as a probability."""
    parts = sentence(text)
    return [x if isinstance(x, str) else [x[0], "" if x[1] == "p" else x[1]] for x in parts]


def encode_detail_forms(header: Header) -> dict[str, dict[str, Any]]:
    """Name of a detail -> the words of its declaration, for the shapes that a page draws with them."""
    shown = {
        name: _encode_threads_form(form)
        for name, form in header.details.items()
        if isinstance(form, ThreadsForm)
    }
    return shown | {
        name: _encode_canvas_form(x) for name, x in header.details.items() if isinstance(x, CanvasForm)
    }


def _encode_threads_form(form: ThreadsForm) -> dict[str, Any]:
    """card: sentences on a thread that continues;  ends: why a thread ended -> that in words"""
    return {"card": " ".join(FormulaScope({}, {}).say_all(form.card)), "ends": form.ends}


def _encode_canvas_form(form: CanvasForm) -> dict[str, Any]:
    """The words for places that are filled in any order.
    They say which part decided, how places rank and settle, why one stays, word of a rule -> [sign, words, why], and
    sentences on cells and on stand-ins. For a row: title, sentence and heads of the card, and `run`, the relation by which a
    place follows those before it, or null."""
    if form.drawn == "canvas":
        return {
            "part": form.part,
            "rank": [formula(x) for x in form.rank],
            "settles": [[*relation(x)] for x in form.settles],
            "stays": encode_sentences(form.stays),
            "words": {rule: [x.sign, x.word, encode_sentences(x.why)] for rule, x in form.words.items()},
            "cells": encode_sentences(form.cells),
            "standins": form.standins,
        }
    return {
        "title": form.card,
        "hint": " ".join(FormulaScope({}, {}).say_all(form.hint)),
        "heads": form.heads,
        "run": [*relation(form.run)] if form.run else None,
    }


def encode_sentences(declared: Iterable[Sentence]) -> list[list[Any]]:
    """Each as [its parts, required values of names, the relation that must hold or null].
    A part is a text, or a list of a formula and its form; a relation is [formula, sign, formula]."""
    return [[sentence(x.text), x.given, [*relation(x.where)] if x.where else None] for x in declared]
