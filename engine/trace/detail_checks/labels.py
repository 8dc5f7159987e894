"""Check labels: compare counts and mentions that were written in parallel with the threads that wrote them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..details.shapes import Detail, TallyDetail
from ..details.threads import TextThread, ThreadTree
from ..values.mentions import STAND, mention_outcomes, parse_count, parse_mention

LABELS, MENTIONS = "labels", "mentions"
WHOLE = {LABELS: ("thread", "count"), MENTIONS: ("label", "index", "thread")}  # columns of whole numbers
OTHERS = {LABELS: ("name",), MENTIONS: ("name", "text", "p", "logp", "own")}  # others that no row may lack
Text = Callable[[list[int]], str]
Row = dict[str, Any]


def labels_problems(details: Sequence[Detail], tree: ThreadTree, text: Text | None) -> Iterator[str]:
    """Problems of the labels of a run with the threads `tree`. details: the two tallies of labels and of mentions
    text: ids -> text, None if the trace does not show it"""
    if wrong := _tallies_problem(details, len(tree.strands)):
        yield wrong
        return
    labels, mentions = (
        [one.row(k) for k in range(len(one))] for one in details if isinstance(one, TallyDetail)
    )
    due = [
        (i, j, child)
        for i, label in enumerate(labels)
        for j, child in enumerate(_ordered_children(tree.strands[label["thread"]]), 1)
    ]
    if [(x["label"], x["index"], x["thread"]) for x in mentions] != [(i, j, x.number) for i, j, x in due]:
        yield "its mentions are not those whose threads began behind the counts"
        return
    for label in labels:
        yield from _label_problems(label, tree.strands[label["thread"]], text)
    for mention, (at, _, strand) in zip(mentions, due, strict=True):
        if mention["name"] != labels[at]["name"]:
            yield f"{_mention_name(mention)} is one of {mention['name'][:40]!r}, which is another label"
        yield from _mention_problems(mention, strand, tree, text)
    yield from _outcome_problems(mentions)
    values, kept = getattr(details[0], "values", {}), sum(x["outcome"] in STAND for x in mentions)
    if [values.get("mentions"), values.get("kept")] != [len(mentions), kept]:
        yield f"it records {values.get('kept')} mentions of {values.get('mentions')} that are kept, and {kept} do"


def _tallies_problem(details: Sequence[Detail], threads: int) -> str:
    """Why the tallies cannot be followed; "": they can."""
    if [x.name for x in details] != [LABELS, MENTIONS]:
        return "it does not record labels and then mentions, once"
    for one in details:
        columns = one.columns if isinstance(one, TallyDetail) else {}
        for name in (*WHOLE[one.name], *OTHERS[one.name]):
            if name not in columns or None in columns[name]:
                return f"its {one.name} lack a {name}"
        if any(type(x) is not int for name in WHOLE[one.name] for x in columns[name]):
            return f"its {one.name} have a number that is not whole"
        if not all(0 <= x < threads for x in columns["thread"]):
            return f"its {one.name} name a thread that there is not"
    return ""


def _label_problems(label: Row, strand: TextThread, text: Text | None) -> Iterator[str]:
    name, count = label["name"], label["count"]
    said = None if text is None else text(strand.tokens)
    if said is not None and count != (parse_count(said) or 0):
        yield f"of the label {name[:40]!r} it read the count {count}, but its thread wrote {said[:40]!r}"
    if len(_ordered_children(strand)) > count:
        yield f"of the label {name[:40]!r} more mentions were written than the {count} that it counted"


def _mention_problems(mention: Row, strand: TextThread, tree: ThreadTree, text: Text | None) -> Iterator[str]:
    p, logp = mention["p"], mention["logp"]
    if len(p) != len(strand.tokens) or not all(x is not None and 0 < x <= 1 + 1e-9 for x in p):
        yield f"{_mention_name(mention)} has not one probability for each of its {len(strand.tokens)} tokens"
    elif not abs(logp - sum(map(math.log, p))) <= 1e-9 * max(1.0, abs(logp)):
        yield f"{_mention_name(mention)} has logp = {logp:.6g}, which is not that of its tokens"
    stopped = strand.why == "stop_token" and bool(strand.tokens) and strand.tokens[-1] in tree.stops
    said = None if text is None else text(strand.tokens[: len(strand.tokens) - stopped])
    if said is not None and mention["text"] != parse_mention(said):
        yield f"{_mention_name(mention)} is called {mention['text'][:40]!r}, but its thread wrote {said[:60]!r}"


def _outcome_problems(mentions: Sequence[Row]) -> Iterator[str]:
    """Where a mention has another outcome than the probabilities give."""
    columns = ([x[name] for x in mentions] for name in ("label", "text", "logp"))
    for mention, *due in zip(mentions, *mention_outcomes(*columns), strict=True):
        recorded = [mention.get(name) for name in ("outcome", "own", "other")]
        if recorded != due:
            yield f"{_mention_name(mention)} is {recorded}, and by the probabilities it is {due}"


def _mention_name(mention: Row) -> str:
    return f"mention {mention['index']} of label {mention['label']}"


def _ordered_children(strand: TextThread) -> list[TextThread]:
    return [child for at in sorted(strand.children) for child in strand.children[at]]
