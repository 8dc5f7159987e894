"""The command `bench`: measure the methods on this machine, beside transformers, on questions, or where their time goes."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .decode import ROLES, compose, read_prompt
from .refusal import Refusal, is_refusal, sentence
from .report import note, say_json, size, table

if TYPE_CHECKING:
    from ..engine.labbench import Bench
    from ..engine.labfile import Gathered
    from ..engine.method import Method
    from ..engine.questions import Question

# option -> the value that it has where it is not given; None: an option of the other measurements
ON_QUESTIONS = {
    "questions": None, "short": False, "method": None, "seed": 0, "out": None, "resume": False, "draft2": None, "draft3": None
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    "decode": {"new_tokens": 128, "repeats": 5, "prompt_file": None, "level": "counts"},
    "labbench": {**ON_QUESTIONS, "new_tokens": None, "temperature": 0.0},
    "speculation": {**ON_QUESTIONS, "new_tokens": 40, "repeats": 3, "temperature": 0.8},
}


def bench(args: argparse.Namespace) -> int:
    """Measure and print."""
    mine = USUAL[args.what]
    for name in {x for usual in USUAL.values() for x in usual}:
        if name not in mine and getattr(args, name) is not None:
            others = " and ".join(x for x in USUAL if name in USUAL[x])
            raise Refusal(f"--{name.replace('_', '-')} is an option of bench {others}: leave it out of bench {args.what}.")
        if name in mine and getattr(args, name) is None:
            setattr(args, name, mine[name])
    if args.draft is None and args.model == "lab":
        args.draft = "lab-draft"
    args.draft = None if args.draft == "none" else args.draft
    if args.what == "speculation":
        from .speculation import speculation

        return measured(args, speculation)
    return decode(args) if args.what == "decode" else measured(args, labbench)


# ---- beside transformers


def decode(args: argparse.Namespace) -> int:
    """Measure our engine and transformers, and print."""
    prompts = None if args.prompt_file is None else {args.prompt_file: read_prompt(args.prompt_file)}
    if prompts is not None and not any(prompts.values()):
        raise Refusal(f"The prompt file {args.prompt_file} is empty: give a text to go on from.")
    from ..engine.bench import decode

    found = decode(
        args.model,
        args.draft,
        dtype=args.dtype,
        device=args.device,
        threads=args.threads,
        new_tokens=args.new_tokens,
        repeats=args.repeats,
        prompts=prompts,
        level=None if args.level == "none" else args.level,
        say=(lambda text: None) if args.json else note,
    )
    if args.json:
        say_json(found)
    else:
        print(page(found))
    return 0


def page(found: dict[str, Any]) -> str:
    """The figures as text."""
    head = (
        f"{found['machine']}, {found['device']}, {found['threads']} threads; torch {found['torch']}, transformers "
        f"{found['transformers']}\n{found['model']} with {found['draft'] or 'no draft model'}, {found['dtype']}, "
        f"{len(found['prompts'])} prompts of {', '.join(map(str, found['prompts'].values()))} tokens, "
        f"{found['new_tokens']} new ones; medians of {found['repeats']} rounds\n"
    )
    rows = [
        [
            x["name"],
            x["side"],
            f"{x['tokens_per_s']:.1f}",
            "-" if x["tau"] is None else f"{x['tau']:.2f}",
            f"{sum(n == found['new_tokens'] for n in x['same_tokens'].values())} of {len(x['same_tokens'])}",
        ]
        for x in found["contestants"]
    ]
    speeds = table(("method", "by", "tokens/s", "tokens per pass", "same text"), rows)
    times = [[x["name"], f"{x['ratio']:.2f}", f"{x['low']:.2f} to {x['high']:.2f}"] for x in found["ratios"]]
    ratios = table(("times as fast", "median", "over the prompts"), times)
    cost = ", ".join(f"{kept} {percent:+.1f} %" for kept, percent in found["recording_percent"].items())
    return f"{head}\n{speeds}\n\n{ratios}\n\nWhat recording to a file adds to our autoregressive decoding: {cost}."


# ---- on questions with known answers


def measured(args: argparse.Namespace, work: Callable[[argparse.Namespace], int]) -> int:
    """Do `work` on questions, in as many threads as were asked for."""
    import torch

    from ..engine.questions import LabBenchError

    before = torch.get_num_threads()
    torch.set_num_threads(args.threads or before)
    try:
        return work(args)
    except LabBenchError as error:
        raise Refusal(str(error)) from None
    finally:
        torch.set_num_threads(before)


def asked(
    args: argparse.Namespace, choose: Callable[[list[Question]], list[Question]]
) -> tuple[list[Question], dict[str, Any], Path | None]:
    """The questions that `choose` takes of the file, what to remember of it, and where the result goes, if anywhere."""
    from ..engine.labbench import QUESTIONS
    from ..engine.labfile import check_place
    from ..engine.questions import read_questions

    if args.resume and args.out is None:
        raise Refusal("--resume goes on with a file: give --out with the name that the measurement had.")
    questions, about = read_questions(args.questions or QUESTIONS)
    out = None if args.out is None else Path(args.out).expanduser()
    if out is not None:
        check_place(out, args.resume)
    return choose(questions), {**about, "short": args.short}, out


def finished(args: argparse.Namespace, result: Gathered[Any], text: Callable[[dict[str, Any]], str], out: Path | None) -> int:
    """Print the result, as JSON or as `text`; the exit code."""
    found = result.record()
    if args.json:
        say_json(found)
    elif result.rows:
        print(text(found))
    else:
        print("Nothing was measured." + "".join(f" {x['why']}" for x in result.skipped[:1]))
    if not result.complete:
        note("Interrupted." + ("" if out is None else f" {out}.partial holds what was measured: --resume goes on from there."))
        return 130
    return 0


def labbench(args: argparse.Namespace) -> int:
    """Put the questions to every method, and print."""
    from ..engine.labbench import SHORT, labbench
    from ..engine.questions import first_of_each

    questions, about, out = asked(args, lambda all_: first_of_each(all_, SHORT) if args.short else all_)
    say = (lambda text: None) if args.json else note
    result = labbench(prepared(args), questions, asked=about, out=out, resume=args.resume, say=say)
    return finished(args, result, told, out)


def prepared(args: argparse.Namespace) -> Bench:
    """The models, and the methods that were asked for. The methods are checked before weights are read."""
    from ..engine.labbench import Bench, compositions, under
    from ..engine.load import describe, find, load

    methods = compositions(args.draft is not None) if args.method is None else named(args.method, compositions())
    read = {role for x in methods.values() for role in x.drafter.lanes}
    given = {role: getattr(args, role) for role in ROLES if getattr(args, role) is not None and role in read}
    name, folder = find(args.model)
    for method in under(methods, args.temperature).values():
        method.check(describe(folder, name), given)
    model = load(args.model, args.dtype, args.device)
    drafts = {role: load(name, args.dtype, args.device) for role, name in given.items()}
    draft = drafts.pop("draft", None)
    more: dict[str, Any] = dict(temperature=args.temperature, seed=args.seed, new_tokens=args.new_tokens)
    return Bench(model, methods, draft, further=drafts, **more)


def named(words: Iterable[str], known: Mapping[str, Method]) -> dict[str, Method]:
    """The methods of several --method, by name."""
    methods: dict[str, Method] = {}
    for word in words:
        name, method = method_of(word, known)
        if name in methods:
            raise Refusal(f"--method {name} stands there twice: give each its own name, e.g. --method other={name}.")
        methods[name] = method
    return methods


def method_of(word: str, known: Mapping[str, Method]) -> tuple[str, Method]:
    """Name and method of NAME or NAME=RECIPE. RECIPE is a known name, that of a part, the words of `decodescope run` that
    choose a method, or the link or JSON of a recipe."""
    name, given, text = word.partition("=")
    name, text = name.strip(), text.strip() if given else name.strip()
    if not name or len(name) > 40 or not name.isprintable():
        raise Refusal(f"--method {word[:40]!r} has no name: write NAME, or NAME=RECIPE.")
    try:
        method = known[text] if text in known else _recipe(text, known)
    except Exception as error:
        if not is_refusal(error) and type(error).__name__ != "Refused":
            raise
        raise Refusal(f"--method {name}: {sentence(error)}") from None
    if not method.sampler.greedy:
        raise Refusal(f"--method {name} chooses a sampler, but all methods share one: leave it out and give --temperature.")
    return name, method


def _recipe(text: str, known: Mapping[str, Method]) -> Method:
    """The method that a recipe describes."""
    from ..engine.component import registry
    from ..engine.method import Method
    from .recipe import from_json

    kind = next((kind for kind in ("drafter", "policy", "depth", "strategy") if text in registry(kind)), None)
    if kind is not None:
        return Method.named({kind: text})
    if text.startswith("{") or "#set=" in text:
        choice = from_json(text.rpartition("#set=")[2])
        return Method.named(choice.names, choice.settings)
    if not text.startswith(("-", "decodescope ")):
        names = ", ".join(known)
        raise Refusal(f"there is no {text[:40]!r}; take {names}, a name that decodescope methods lists, or NAME=RECIPE.")
    from .cli import parser

    try:
        words = shlex.split(text.removeprefix("decodescope run"))
    except ValueError as error:
        raise Refusal(f"its quotes do not match ({error}).") from None
    whole = [*words, "--model", "lab"] + ([] if any(x.startswith("--prompt") for x in words) else ["--prompt", "x"])
    return compose(parser().parse_args(["run", *whole]))


def told(found: Mapping[str, Any]) -> str:
    """The figures of LabBench as text."""
    settings, methods = found["settings"], found["methods"]
    asked = settings["questions"]
    drafts = [x for x in (settings["draft"], *(x["name"] for x in settings.get("further", {}).values())) if x]
    head = (
        f"{settings['machine']}, {settings['device']}, {settings['threads']} threads; torch {settings['torch']}\n"
        f"{settings['model']} with {', '.join(drafts) or 'no draft model'}, {settings['dtype']}, "
        + ("greedy" if not settings["temperature"] else f"temperature {settings['temperature']:g}, seed {settings['seed']}")
        + f"; {sum(found['kinds'].values())} of {asked['count']} questions of {asked.get('file', 'a list')}, "
        f"{found['seconds']:.0f} s\n"
    )
    rows = [[name, *cells(one)] for name, one in methods.items()]
    main = table(("method", *COLUMNS), rows)
    kinds = [
        [f"{kind} ({count})", *(share(one["by_kind"][kind]["accuracy"]) for one in methods.values())]
        for kind, count in found["kinds"].items()
    ]
    deep = max((len(x["offered_by_position"]) for x in methods.values()), default=0)
    places = [[name, *by_position(one)] for name, one in methods.items() if one["offered_by_position"]]
    parts = [head, main, table(("accuracy", *methods), kinds)]
    if places:
        padded = [[*row, *[""] * (deep + 1 - len(row))] for row in places]
        parts.append(table(("accepted at position", *map(str, range(1, deep + 1))), padded))
    goals = [
        [x["what"], f"{100 * x['goal']:.0f} %", share(x["value"]), MET[x["met"]], str(x["questions"])] for x in found["targets"]
    ]
    if any(x["questions"] for x in found["targets"]):
        parts.append(table(("target of plain decoding", "goal", "reached", "", "questions"), goals))
    if found["skipped"]:
        parts.append(f"Questions left out: {len(found['skipped'])}; the first: {found['skipped'][0]['why']}")
    return "\n\n".join(parts)


COLUMNS = (
    *("accuracy", "tokens per pass", "tokens/s", "times as fast", "target passes", "most KV", "most while writing"),
    *("as plain decoding", "faults"),
)
MET = {True: "met", False: "not met", None: "not asked"}


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        share(one["accuracy"]),
        figure(one["tau"]),
        figure(one["tokens_per_s"], 1),
        figure(one["ratio"]),
        str(one["target_passes"]),
        size(one["peak_kv_bytes"]),
        size(one["step_kv_bytes"]),
        likeness(one),
        str(one["faults"] or "-"),
    ]


def by_position(one: Mapping[str, Any]) -> list[str]:
    """For each depth of a draft, how many of the drafts that went so deep were accepted so far."""
    return [share(a / n) for a, n in zip(one["accepted_by_position"], one["offered_by_position"], strict=True)]


def likeness(one: Mapping[str, Any]) -> str:
    """How many texts equal those of plain decoding, and what was written before the others part."""
    if one["identity"] is None:
        return "-"
    count = one["identity"]
    said = f"{count['equal']} of {sum(count.values())}"
    if count["tied"]:
        said += f", {count['tied']} by ties"
    return said if not count["parted"] else f"{said}; {share(one['alike'])} alike"


def share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.0f} %"


def figure(value: float | None, digits: int = 2) -> str:
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"
