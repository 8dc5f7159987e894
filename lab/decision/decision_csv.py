"""Decisions: the tried and untried guesses of a trace as rows of a CSV file."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence

from decodescope.engine.core.tree import depths
from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.checks.step_probabilities import StepProbabilities
from decodescope.lab.formatting.style import PASSENGER, WORDS, origin_word
from decodescope.lab.formatting.tokens import visible_token

COLUMNS = (
    "step",
    "node",
    "parent",
    "depth",
    "position",
    "tried",
    "token",
    "text",
    "p",
    "p_model",
    "entropy_nats",
    "r",
    "q",
    "u",
    "threshold",
    "verdict",
    "emitted",
)
# text that a spreadsheet may take for a formula, at the beginning of a cell or after what it may take for the end of a cell
_FORMULA = re.compile(r"(^|[,;|\"])(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")


def export_csv(trace: Trace) -> Iterator[str]:
    """The lines of the file, the header first. Steps are read one after another, so a long trace takes no more memory.

    A row is a node of a draft tree, or a token of the target's own. step: from 0; node: as the page counts them; 0 is the root,
    the last token before the step, so a node with parent 0 directly follows the text; position: of the token in prompt and
    text; tried: which trial of its step, from 0; p, r, q, u, threshold: their values at the trial; for the target's own tokens
    r is the probability under the distribution that they were drawn from. Numbers are written in full; missing values are
    empty.

    p and r are of the sampling distribution, after the sampler, so 1 or 0 under a greedy one. p_model is of the model
    distribution, before the sampler; it is recorded under a greedy sampler. entropy_nats is that of the model distribution
    under a greedy sampler, else that of the sampling distribution.

    Text is shown as on the page, with signs for spaces and line breaks, at most 40 characters; the token's id is exact. An
    apostrophe precedes a sign that a spreadsheet may take for the beginning of a formula.
    """
    yield _csv_line(COLUMNS)
    for step in trace.steps:
        yield "".join(_csv_line(row) for row in step_rows(trace, step))


def step_rows(trace: Trace, step: Step) -> Iterator[list[object]]:
    """The rows of one step under COLUMNS."""
    draft = step.draft
    trials = step.trials
    path = step.path or []
    pieces = trace.pieces
    shares = StepProbabilities(trace.header, step)
    if draft is not None:
        at = {} if trials is None else {node: i for i, node in enumerate(trials.node)}
        deep = depths(draft.parents)
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            i = at.get(node)
            numbers = [None, None, draft.q[node], None, None]
            refused = False
            if i is not None and trials is not None:
                numbers = [trials.p[i], trials.r[i], trials.q[i], trials.u[i], trials.threshold[i]]
                refused = not trials.ok[i]
            missed = "reject" if refused else "unreached"
            word = WORDS["accept" if node in path else missed]
            word = PASSENGER if node in (draft.passengers or ()) else word
            place = [step.step, node + 1, parent + 1, deep[node], step.n + deep[node] - 1, i]
            numbers[1:1] = [shares.model(parent, token), shares.entropy(parent)]
            yield [
                *place,
                token,
                escape_formula(visible_token(token, pieces)),
                *numbers,
                word,
                int(node in path),
            ]
    last, free = path[-1] + 1 if path else 0, 1 + (0 if draft is None else len(draft.tokens))
    for k, (token, origin) in enumerate(zip(step.emitted, step.origins, strict=True)):
        if origin == "accepted":
            continue
        extra = step.extra if step.extra is not None and k == len(step.emitted) - 1 else None
        share, whole = None if extra is None else extra.high - extra.low, origin in ("bonus", "target")
        law = [shares.model(last - 1, token), shares.entropy(last - 1)]
        numbers = [share if whole else None, *law, share, None, None if extra is None else extra.u, None]
        place = [step.step, free, last, k + 1, step.n + k, None]
        yield [*place, token, escape_formula(visible_token(token, pieces)), *numbers, origin_word(origin), 1]
        last, free = free, free + 1


def escape_formula(text: str) -> str:
    """`text` as a cell that no spreadsheet reads as a formula."""
    return _FORMULA.sub(r"\1'", text)


def _csv_line(row: Sequence[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([_csv_cell(x) for x in row])
    return out.getvalue()


def _csv_cell(x: object) -> object:
    """A number with all its digits; empty where there is none."""
    if isinstance(x, float):
        return repr(x) if math.isfinite(x) else ""
    return "" if x is None else x
