"""Acceptance by position as one CSV row, in the form of the evaluation of speculators, whose plots and tables read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from .report import AcceptanceReport


def export_acceptance(report: AcceptanceReport, subset: str) -> Iterator[str]:
    """The lines of the file: its header, and the row of `subset`, the name of the prompts.

    num_drafts: drafts that were verified, without those that the end of a text cut;  num_draft_tokens: their tokens, in a tree
    all nodes;  num_accepted_tokens: those that stayed;  acceptance_length: tokens that a verified draft gives, the target's own
    included;  acceptance_at_pos_I: share of the drafts with an accepted token at position I, counted from 0.

    Every column counts verdicts, so none depends on which distribution a record shows: a token was accepted by the target's
    sampling distribution, the one after the sampler, which under a greedy sampler leaves one token. Probabilities by token, of
    that distribution (p) and of the model distribution before the sampler (p_model), stand in the table of decisions
    (`lab/decision/decision_csv.py`).

    Form: vllm-project/speculators, scripts/evaluate/perf_utils.py.
    """
    drafts = report.fates["whole"] + report.fates["refused"]
    accepted = sum(x.accepted for x in report.depths)
    row: dict[str, object] = {
        "subset": subset,
        "num_drafts": drafts,
        "num_draft_tokens": sum(x.nodes for x in report.depths),
        "num_accepted_tokens": accepted,
        "acceptance_length": 1 + accepted / drafts,
    }
    row |= {f"acceptance_at_pos_{i}": x.accepted / drafts for i, x in enumerate(report.depths)}
    for cells in (row.keys(), row.values()):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        yield line.getvalue()
