"""The command `doctor draft`: why a draft is refused, and what to check, from both models on the same texts."""

from __future__ import annotations

import argparse
import json
from typing import Any

from decodescope.engine.core.refusal import Refusal

from .shared.bench import format_share, run_with_threads
from .shared.output import load_model, print_json, progress_printer, result_paths, table
from .shared.run import prompt_ids
from .shared.texts import read_prompt_entries
from .shared.trace import write

LISTED = 5  # experiments that are printed
UNBROKEN = ("healthy", "weak", "weak_template")  # causes that no repair takes away


def draft(args: argparse.Namespace) -> int:
    """Examine the draft, print the causes and the figures; exit code 0 whatever the draft is like."""
    return run_with_threads(args, _examine)


def _examine(args: argparse.Namespace) -> int:
    if (args.draft is None) == (args.head is None):
        raise Refusal("Which draft is to be examined? Give either --draft M or --head NAME=PATH.")
    out, html = result_paths(args)
    entries = read_prompt_entries(args.prompts)[: args.most]
    from decodescope.engine.draft_doctor.examination import examine_draft

    heads = {} if args.head is None else dict([args.head])
    model = load_model(args.model, args.dtype, args.device, heads, args.allow_pickle)
    if model.tokenizer is None:
        raise Refusal(
            f"{model.name} has no tokenizer.json, so it cannot read a text: add the file to its folder."
        )
    drafted = args.head[0] if args.head else load_model(args.draft, args.dtype, args.device)
    prompts = [x.text if x.prompt_kind == "text" else prompt_ids(model, x.source()) for x in entries]
    record = examine_draft(
        model,
        drafted,
        prompts,
        answer_tokens=args.answer_tokens,
        window=args.window,
        distil=args.distil,
        say=progress_printer(args.json),
    ).record()
    if out is not None:
        write(out, [json.dumps(record), "\n"])
    if html is not None:
        from decodescope.lab.figures.measured.draft_examination import figure

        write(html, [figure(record).to_html(include_plotlyjs=True)])
    if args.json:
        print_json(record)
    else:
        print(examination_text(record))
        print(*offer_fork(record, args.head and args.head[0]), sep="\n")
    return 0


def offer_fork(record: dict[str, Any], head: str | None) -> list[str]:
    """How a repaired draft is tried at the steps of a recorded run, in lines; none where there is nothing to repair.

    record: of an examination;  head: the kind of the examined head; None: a draft model
    """
    if record["findings"][0]["cause"] in UNBROKEN:
        return []
    instead = "--then-draft REPAIRED" if head is None else f"--then-head {head}=REPAIRED"
    return [
        "\nWould a repaired draft have been accepted? From a step of a recorded run on:",
        f"   decodescope trace fork RUN.dstrace --step N {instead} --trace REPAIRED.dstrace",
    ]


def examination_text(record: dict[str, Any]) -> str:
    """An examination as text: the causes, the readings that help most, and the figures."""
    head = (
        f"{record['draft']} for {record['target']}: {record['places']} places of {record['texts']} texts, temperature 1\n"
        f"overlap (1 - TV) {record['overlap']:.1%}, same likeliest token {record['top1']:.1%}, KL {record['kl']:.3f} nats"
    )
    if record["tokens_a_pass"] is not None:
        head += f"\ndrafting greedily, it keeps {record['tokens_a_pass']:.2f} tokens a pass, the target's own included"
    causes = [
        f"{i}. {x['title']} ({x['cause']}, certainty {x['certainty']:.2f})\n   {x['evidence']}\n   {x['check']}"
        for i, x in enumerate(record["findings"], 1)
    ]
    tried = [
        [x["how"], format_share(x["before"]), format_share(x["after"])]
        for x in record["experiments"][:LISTED]
    ]
    ranks = [[_format_range(x["from"], x["to"]), format_share(x["share"])] for x in record["ranks"]]
    offsets = [
        [f"{x['offset']:+d}", format_share(x["agree"]), format_share(x["overlap"])]
        for x in record["by_offset"]
    ]
    ids = [[f"{x['distance']:+d}", format_share(x["share"])] for x in record["by_id_distance"]]
    positions = [
        [_format_range(x["from"], x["to"]), format_share(x["overlap"])] for x in record["by_position"]
    ]
    classes = [
        [name, str(x["places"]), format_share(x["overlap"])]
        for name, x in (
            *((x["class"], x) for x in record["by_class"]),
            *(("chat template" if x["chat"] else "plain prompts", x) for x in record["by_template"]),
        )
    ]
    return "\n\n".join(
        [
            head,
            *causes,
            *(
                []
                if (gain := record["distillation"]) is None
                else [gain if isinstance(gain, str) else gain["sentence"]]
            ),
            table(("the draft read with", "overlap before", "after"), tried),
            table(("rank of the target's token in the draft", "places"), ranks),
            table(("places away", "same token", "overlap"), offsets),
            table(("target's id minus draft's", "places"), ids),
            table(("position in the text", "overlap"), positions),
            table(("tokens", "places", "overlap"), classes),
        ]
    )


def _format_range(low: int, high: int | None) -> str:
    if high is None:
        return f"{low} and more"
    return str(low) if low == high else f"{low} to {high}"
