"""Trees, explained: the texts that a step followed, described by the header. No strategy is known here by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.detail_checks.trees import declared_trees, tree_reading
from decodescope.engine.trace.details.tree import TreeReading, tree_problems
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.formatting.tokens import visible_piece, visible_token

from .explanation import Explanation, ExplanationLine


def explain_tree(trace: Trace, step: Step) -> Explanation | None:
    """The first tree of a step that no tally describes; None where there is none that the header declares."""
    before = trace.steps[step.step - 1] if step.step else None
    for detail, form in declared_trees(trace.header, step):
        if form.judged:
            continue
        reading = tree_reading(trace.header, step, detail, form, before, partial(_format_text, trace))
        return _explain_reading(trace, reading)
    return None


def merge_tree(card: Explanation | None, tree: Explanation | None) -> Explanation | None:
    """The card of what a step tried, extended by its tree; None where it has neither."""
    if card is None or tree is None:
        return card or tree
    card.lines += tree.lines
    card.agrees = bool(card.agrees and tree.agrees)
    return card


def _format_text(trace: Trace, ids: Sequence[int]) -> str:
    return visible_piece(join(ids, trace.pieces))


def _explain_reading(trace: Trace, reading: TreeReading) -> Explanation:
    form, nodes = reading.form, reading.nodes_by_fate("open")
    first = _format_token(trace, reading, nodes[0]) if nodes else ""
    noun = form.noun if len(nodes) == 1 and not reading.detail.earlier else form.nouns
    explained = Explanation("target", form.title, first, f"{len(nodes)} {noun}", form.rule or "tree")
    listed = tuple(_open_node_line(trace, reading, rank, node) for rank, node in enumerate(nodes, 1))
    words = [*reading.whole_scope.say_all(form.lines)] or [f"The {form.nouns} of this step:"]
    explained.lines += [ExplanationLine(words[0], listed), *map(ExplanationLine, words[1:])]
    for word, outcome in form.outcomes.items():
        held = reading.detail.columns.get("outcome", [])
        own = [node for node in range(len(held)) if held[node] == word]
        if outcome.heading and own and outcome.fate != "open":
            rows = tuple(_node_line(trace, reading, node) for node in own)
            explained.lines.append(ExplanationLine(outcome.heading, rows))
    explained.agrees = not [*tree_problems(reading)]
    return explained


def _format_token(trace: Trace, reading: TreeReading, node: int) -> str:
    token = reading.token(node)
    return reading.form.root if token is None else visible_token(token, trace.pieces)


def _open_node_line(trace: Trace, reading: TreeReading, rank: int, node: int) -> str:
    """An open node: its token, the node that it continues, and its description."""
    parent = reading.detail.parents[node]
    if reading.detail.earlier:
        return (
            f"{rank}. {_format_token(trace, reading, node)}   continues {reading.form.noun} {parent + 1} of the step before, "
            + (_node_remarks(reading, node))
        )
    return f"{rank}. {_node_line(trace, reading, node)}"


def _node_line(trace: Trace, reading: TreeReading, node: int) -> str:
    """A node: its token, the node before it, and its description."""
    parent = reading.detail.parents[node]
    behind = "the text"
    if parent >= 0:
        number = parent + 1 if reading.detail.earlier else reading.number_of(parent)
        behind = f"{reading.form.noun} {number}"
    return f"{_format_token(trace, reading, node)}   behind {behind}, {_node_remarks(reading, node)}"


def _node_remarks(reading: TreeReading, node: int) -> str:
    said = reading.node_scope(node).say_all(
        reading.outcomes[node].row or reading.form.exact or reading.form.worth
    )
    return ", ".join(said)
