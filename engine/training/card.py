"""Card: how a head was made, in words, for the people who find its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decodescope.engine.model.heads.base import Head
from decodescope.engine.session.load import Model


def format_card(
    model: Model, head: Head, notes: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], folder: Path
) -> str:
    """The card of a head, as Markdown. notes: those of its config.json;  metrics: the measurements of its training"""
    how, measured = notes["made_with"], notes["measured"]
    count = sum(p.numel() for p in head.parameters())
    size = (folder / "model.safetensors").stat().st_size
    rows = [
        f"| {row['tokens']:,} | {row['loss']:.3f} | {', '.join(f'{x:.1%}' for x in row['accepted'])} | "
        f"{row['tokens_per_pass']:.2f} |"
        for row in metrics
    ]
    sizes = ", ".join(f"{name} {value:,}" for name, value in head.shape.items() if value)
    return "\n".join(
        [
            f"# {head.kind} head for {model.name}",
            "",
            f"Model: {model.name}, fingerprint `{model.fingerprint}`.",
            f"Net: {count:,} parameters, {size / 1e6:.1f} MB; {sizes}.",
            "",
            f"It learnt from the model's own answers to {how['prompts']:,} prompts, at most {how['answer_tokens_most']:,} "
            f"tokens each, at temperature {how['temperature']:g}. It read {how['trained_tokens']:,} tokens of them in "
            f"{how['seconds']:,.0f} seconds (there are {how['answer_tokens']:,} different ones), with seed {how['seed']}, "
            f"rates {how['lr']:g} (AdamW) and {how['muon']:g} (Muon).",
            "",
            f"On {measured['held_out_prompts']} held-out prompts a guess is the model's likeliest token, by position of a "
            f"draft, where all guesses before it were right: {', '.join(f'{x:.1%}' for x in measured['accepted'])}. "
            f"A chain of these guesses gives {measured['tokens_per_pass']:.2f} tokens a pass.",
            "",
            "| tokens | loss | accepted by position | tokens a pass |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Use: `decodescope run --model {model.reference} --head {head.kind}={folder} --drafter {head.kind} ...`",
            "",
        ]
    )
