"""The command `workload`: requests with some prompts more frequent than others, and an answer cache in front."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.runs.prompts import JSON_LINES, PromptEntry, parse_prompts
from decodescope.app.runs.threads import choose_threads
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.answer_cache import (
    AnswerCache,
    CachedAnswer,
    WorkloadTotals,
    serve_requests,
    workload_totals,
    zipf_requests,
)
from decodescope.engine.trace.records.lookups import EVICTS, Lookup, replay_lookups
from decodescope.lab.formatting.prompt_sentences import prompt_sentences

from .shared.output import print_json, print_note, result_paths, table
from .shared.run import (
    build_method,
    check_option_texts,
    load_models,
    model_notes,
    prompt_ids,
    special_token_notes,
    unused_model_notes,
)
from .shared.texts import read_text
from .shared.trace import write

if TYPE_CHECKING:
    from decodescope.engine.trace import Trace


def workload(args: argparse.Namespace) -> int:
    """Serve the requests as specified; the exit code."""
    out, html = result_paths(args)
    prompts = drop_duplicates(
        parse_prompts(read_text(args.prompts), args.prompts, args.prompts.endswith(JSON_LINES))
    )
    check_option_texts(("--stop", text) for text in args.stop)
    if "" in args.stop:
        raise Refusal(
            "--stop is empty, and every text holds that: give the text to end at, or leave --stop out."
        )
    requests = zipf_requests(len(prompts), args.requests, args.zipf, args.seed)
    answers: AnswerCache[list[int]] = AnswerCache(args.capacity, args.evicts)
    texts: dict[int, str] = {}
    for lookup, text in _serve_requests(args, prompts, requests, answers):
        texts[requests[lookup.number]] = text
        if not args.json:
            print(_row(lookup, prompts), flush=True)
    if out is not None:
        _write(out, answers.lookups, prompts, texts)
    if html is not None:
        _draw(args, html, answers.lookups, prompts)
    _print_result(args, answers.lookups, prompts, out)
    return 0


def drop_duplicates(prompts: list[PromptEntry]) -> list[PromptEntry]:
    """The prompts, each text once: a cache compares the exact text."""
    first: dict[str, PromptEntry] = {}
    for prompt in prompts:
        first.setdefault(prompt.text, prompt)
    return list(first.values())


def _serve_requests(
    args: argparse.Namespace, prompts: list[PromptEntry], requests: list[int], answers: AnswerCache[list[int]]
) -> Iterator[tuple[Lookup, str]]:
    """Each request, and its text. A prompt that is not cached is decoded, as `run` decodes it."""
    from decodescope.engine.session.run import run

    method = build_method(args)
    notes = unused_model_notes(args, method)
    model, drafts = load_models(args, method)
    for text in notes + model_notes(method, model, drafts):
        print_note(text)
    choose_threads(args, model)
    sources = {q: prompts[q].source(args.chat) for q in dict.fromkeys(requests)}
    ids = {q: prompt_ids(model, x) for q, x in sources.items()}
    for text in special_token_notes(args, model, sources.values()):
        print_note(text)

    def answer(query: int) -> CachedAnswer[list[int]]:
        done = run(
            model, method, ids[query], models=drafts, max_new_tokens=args.max_new_tokens, seed=args.seed,
            ignore_eos=args.ignore_eos, stop=args.stop, level="summary",
        )  # fmt: skip
        return CachedAnswer(done.tokens, run_flops(done.trace), len(ids[query]) + len(done.tokens))

    assert model.tokenizer is not None
    for lookup, tokens in serve_requests(answers, requests, answer):
        yield lookup, model.tokenizer.decode(tokens)


def run_flops(trace: Trace) -> float:
    """The cost of a run: operations of all passes of all its models, by the cost model."""
    from decodescope.engine.cost.passes import PassPricer

    passes = PassPricer(trace.header)
    prefill = [] if trace.prefill is None else passes.learn(trace.prefill).passes
    whole = sum(passes.cost(one).flops for one in prefill)
    return float(
        whole + sum(passes.cost(one, step.draft).flops for step in trace.steps for one in step.passes)
    )


def _row(lookup: Lookup, prompts: list[PromptEntry]) -> str:
    """A request in a line."""
    said = "hit" if lookup.hit else f"{lookup.cost / 1e9:.3f} GFLOP"
    kept = "; not kept" if lookup.query in lookup.victims else ""
    gone = ", ".join(prompts[int(x)].name for x in lookup.victims if x != lookup.query)
    return f"{lookup.number}: {prompts[int(lookup.query)].name}: {said}{kept}" + (
        f"; {gone} went" if gone else ""
    )


def _write(out: Path, lookups: list[Lookup], prompts: list[PromptEntry], texts: dict[int, str]) -> None:
    """Write the requests, an object per line; answered requests have the text too."""
    lines = []
    for one in lookups:
        query = int(one.query)
        said = {**asdict(one), "name": prompts[query].name, **({} if one.hit else {"text": texts[query]})}
        lines.append(json.dumps(said, ensure_ascii=False) + "\n")
    write(out, lines)


def _draw(args: argparse.Namespace, html: Path, lookups: list[Lookup], prompts: list[PromptEntry]) -> None:
    """Write the picture of the requests, which fetches nothing."""
    from decodescope.lab.figures.measured.workload import figure

    drawing = figure(lookups, args.capacity, args.evicts, {i: x.name for i, x in enumerate(prompts)})
    write(html, [drawing.to_html(include_plotlyjs=True)])


def sums(one: WorkloadTotals) -> dict[str, float]:
    """The figures of a workload."""
    return {"hits": one.hits, "flops": one.cost, "saved_flops": one.saved}


def _print_result(
    args: argparse.Namespace, lookups: list[Lookup], prompts: list[PromptEntry], out: Path | None
) -> None:
    """Print the totals, next to the totals of the other eviction rules on the same requests."""
    asked = prompt_sentences(
        sum(x.source(args.chat).is_templated for x in prompts), [x.later for x in prompts]
    )
    every = {
        x: workload_totals(lookups if x == args.evicts else replay_lookups(lookups, x, args.capacity))
        for x in EVICTS
    }
    if args.json:
        said: dict[str, Any] = {
            "requests": len(lookups),
            "prompts": [x.name for x in prompts],
            "evicts": args.evicts,
        }
        said |= {"capacity": args.capacity, **sums(every[args.evicts]), "others": {}}
        said["others"] = {x: sums(one) for x, one in every.items() if x != args.evicts}
        print_json({**said, "lookups": [asdict(x) for x in lookups], "out": out and str(out), "notes": asked})
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
