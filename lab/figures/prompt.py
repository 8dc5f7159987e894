"""Prompt: the score of each token in the prompt compression that cut it, and whether it was read."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.pieces import join
from decodescope.engine.trace.records.prompt_cut import LEFT, NEAR, OUT, SCORE, STAYS, reasons

from .chart import ACCEPT, INK, MUTED, REJECT, chart, text_label

KINDS = (
    ("read for its score", SCORE, ACCEPT, ""),
    ("read next to such a one", NEAR, ACCEPT, "/"),
    ("stays in any case", STAYS, INK, ""),
    ("left out", LEFT, REJECT, "/"),
    ("went with its paragraph", OUT, MUTED, "x"),
)


def figure(trace: Trace) -> go.Figure:
    """A bar for each token of the prompt, as high as its score, coloured by whether and why it was read; hovering shows the
    token.
    Raises ValueError if no prompt compression left tokens out, or the record has no scores of it."""
    cut = None if trace.prefill is None else trace.prefill.cut
    if cut is None or cut.scores is None:
        raise ValueError(
            "Of this run's prompt no token was left out for its score: take one of selective_context."
        )
    ids = trace.header.prompt.tolist()
    words = [text_label(join([token], trace.pieces), 24) for token in ids]
    bars, fates = [], reasons(cut, len(ids)).tolist()
    for name, kind, colour, shape in KINDS:
        at = [i for i, reason in enumerate(fates) if reason == kind]
        if at:
            bars.append(
                go.Bar(
                    x=at,
                    y=[float(cut.scores[i]) for i in at],
                    name=f"{name}: {len(at)}",
                    marker=dict(color=colour, pattern=dict(shape=shape), line=dict(width=0)),
                    customdata=[words[i] for i in at],
                    hovertemplate="%{customdata}<br>token %{x}, score %{y:.3f}<extra></extra>",
                )
            )
    drawing = chart(
        f"Prompt: {len(cut.kept)} of {len(ids)} tokens read", "token of the prompt", "score", *bars
    )
    drawing.update_layout(bargap=0, barmode="overlay")
    return drawing
