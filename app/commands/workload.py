"""The command `workload`: requests that ask for some prompts more often than for others, with a cache of answers in front."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.runs.processors import decided
from decodescope.app.runs.prompts import JSON_LINES, Prompt, of_text
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.answers import Answer, Answers, Totals, served, totals, zipf
from decodescope.engine.trace.records.lookups import EVICTS, Lookup, replayed
from decodescope.lab.formatting.asked import how_asked

from .shared.output import free_file, note, say_json, table
from .shared.run import compose, ignored, models, on_prompts, prompt_ids, remarks, typed
from .shared.texts import read_text
from .shared.trace import write

if TYPE_CHECKING:
    from decodescope.engine.trace import Trace


def workload(args: argparse.Namespace) -> int:
    """Serve the requests as asked; the exit code."""
    out = None if args.out is None else free_file(args.out, "--out", "the requests")
    html = None if args.html is None else free_file(args.html, "--html", "their picture")
    prompts = distinct(of_text(read_text(args.prompts), args.prompts, args.prompts.endswith(JSON_LINES)))
    typed(("--stop", text) for text in args.stop)
    if "" in args.stop:
        raise Refusal(
            "--stop is empty, and every text holds that: give the text to end at, or leave --stop out."
        )
    requests = zipf(len(prompts), args.requests, args.zipf, args.seed)
    answers: Answers[list[int]] = Answers(args.capacity, args.evicts)
    texts: dict[int, str] = {}
    for lookup, text in _served(args, prompts, requests, answers):
        texts[requests[lookup.number]] = text
        if not args.json:
            print(_row(lookup, prompts), flush=True)
    if out is not None:
        _write(out, answers.lookups, prompts, texts)
    if html is not None:
        _draw(args, html, answers.lookups, prompts)
    _show(args, answers.lookups, prompts, out)
    return 0


def distinct(prompts: list[Prompt]) -> list[Prompt]:
    """The prompts, each text once: a cache goes by the exact text."""
    first: dict[str, Prompt] = {}
    for prompt in prompts:
        first.setdefault(prompt.text, prompt)
    return list(first.values())


def _served(
    args: argparse.Namespace, prompts: list[Prompt], requests: list[int], answers: Answers[list[int]]
) -> Iterator[tuple[Lookup, str]]:
    """Each request, and its text. A prompt that is not held is decoded, as `run` decodes it."""
    from decodescope.engine.session.run import run

    method = compose(args)
    notes = ignored(args, method)
    model, drafts = models(args, method)
    for text in notes + remarks(model, *drafts.values()):
        note(text)
    decided(args, model)
    ids = {q: prompt_ids(model, prompts[q].text, args.chat) for q in dict.fromkeys(requests)}
    for text in on_prompts(args, model, [(prompts[q].text, args.chat) for q in ids]):
        note(text)

    def answer(query: int) -> Answer[list[int]]:
        done = run(
            model, method, ids[query], models=drafts, max_new_tokens=args.max_new_tokens, seed=args.seed,
            ignore_eos=args.ignore_eos, stop=args.stop, level="counts",
        )  # fmt: skip
        return Answer(done.tokens, flops(done.trace), len(ids[query]) + len(done.tokens))

    assert model.tokenizer is not None
    for lookup, tokens in served(answers, requests, answer):
        yield lookup, model.tokenizer.decode(tokens)


def flops(trace: Trace) -> float:
    """What a run cost: operations of all passes of all its models, by the cost model."""
    from decodescope.engine.cost.passes import Passes

    passes = Passes(trace.header)
    prefill = [] if trace.prefill is None else passes.learn(trace.prefill).passes
    whole = sum(passes.cost(one).flops for one in prefill)
    return float(
        whole + sum(passes.cost(one, step.draft).flops for step in trace.steps for one in step.passes)
    )


def _row(lookup: Lookup, prompts: list[Prompt]) -> str:
    """A request in a line."""
    said = "hit" if lookup.hit else f"{lookup.cost / 1e9:.3f} GFLOP"
    kept = "; not kept" if lookup.query in lookup.victims else ""
    gone = ", ".join(prompts[int(x)].name for x in lookup.victims if x != lookup.query)
    return f"{lookup.number}: {prompts[int(lookup.query)].name}: {said}{kept}" + (
        f"; {gone} went" if gone else ""
    )


def _write(out: Path, lookups: list[Lookup], prompts: list[Prompt], texts: dict[int, str]) -> None:
    """Keep the requests, an object a line; those that were answered have the text too."""
    lines = []
    for one in lookups:
        query = int(one.query)
        said = {**asdict(one), "name": prompts[query].name, **({} if one.hit else {"text": texts[query]})}
        lines.append(json.dumps(said, ensure_ascii=False) + "\n")
    write(out, lines)


def _draw(args: argparse.Namespace, html: Path, lookups: list[Lookup], prompts: list[Prompt]) -> None:
    """Keep the picture of the requests, which fetches nothing."""
    from decodescope.lab.figures.measured.workload import figure

    drawing = figure(lookups, args.capacity, args.evicts, {i: x.name for i, x in enumerate(prompts)})
    write(html, [drawing.to_html(include_plotlyjs=True)])


def sums(one: Totals) -> dict[str, float]:
    """The figures of a workload."""
    return {"hits": one.hits, "flops": one.cost, "saved_flops": one.saved}


def _show(args: argparse.Namespace, lookups: list[Lookup], prompts: list[Prompt], out: Path | None) -> None:
    """The sums, beside those that the other rules of eviction would have had on the same requests."""
    asked = how_asked(len(prompts) if args.chat else 0, [x.later for x in prompts])
    every = {x: totals(lookups if x == args.evicts else replayed(lookups, x, args.capacity)) for x in EVICTS}
    if args.json:
        said: dict[str, Any] = {
            "requests": len(lookups),
            "prompts": [x.name for x in prompts],
            "evicts": args.evicts,
        }
        said |= {"capacity": args.capacity, **sums(every[args.evicts]), "others": {}}
        said["others"] = {x: sums(one) for x, one in every.items() if x != args.evicts}
        say_json({**said, "lookups": [asdict(x) for x in lookups], "out": out and str(out), "notes": asked})
        return
    rows = [
        [
            x if x == args.evicts else f"{x}, gone through again",
            f"{one.hits / one.requests:.0%}",
            f"{one.cost / 1e9:.2f}",
            f"{one.saved / (one.cost + one.saved):.0%}",
        ]
        for x, one in every.items()
    ]
    lines = [table((f"{len(lookups)} requests", "hits", "GFLOP", "saved"), rows), *asked]
    print("\n" + "\n".join(lines + ([f"requests: {out}"] if out else [])))
