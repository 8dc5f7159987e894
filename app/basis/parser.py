"""Parser: the commands and options, and the file of `commands` that runs each. Nothing heavy is imported."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from decodescope import __version__
from decodescope.engine.core.exactness import VALUES
from decodescope.engine.core.roles import DRAFTS

from .arguments import (
    DTYPES,
    Parser,
    device,
    float_in_range,
    forced_verdict,
    int_in_range,
    layer_list,
    name_and_path,
    option,
    parameter_count,
    role_and_model,
)
from .limits import SEEDS, LabLimits

KINDS = (
    "strategy",
    "drafter",
    "schedule",
    "acceptance",
    "prompt_compression",
    "policy",
    "kv_compression",
    "adaptive_depth",
    "unmasking",
    "router",
    "guidance",
    "sampler",
)  # kinds of parts, as in engine/core/component.py, which needs more imports
ALL_KINDS = (*KINDS, "weights")  # including the kinds of a model's parts
LEVELS = ("summary", "decisions", "full")
HOWS = ("tested", "naive", "static", "independent", "shared")  # procedures of a calibration
TOKENS = 1_000_000
TEXTS = 32  # texts decoded together by default
BENCHES = (
    "decode",
    "labbench",
    "speculation",
    "kv",
    "parallel",
    "depth",
    "cascade",
    "cloze",
    "words",
    "prompts",
    "models",
)
MODEL = "a shipped one (see docs/models.md), a folder with a path separator, a GGUF file, or a hub id; +NAME adds its adapter"
WEIGHTS = "make another model of it first, such as 'int4 group=64'; several with + between them"


def build_parser() -> Parser:  # noqa: PLR0915
    """The whole command line."""
    top = Parser(
        prog="decodescope", description="See how fast LLM decoding works, step by step, on real models."
    )
    top.add_argument("--version", action=VersionAction, help="print the version and exit")
    top.add_argument(
        "--parts",
        action="append",
        default=[],
        metavar="FILE",
        help="load a part of your own from a Python file, or all of a folder; its name is the file's; repeatable",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str, module: str, function: str, help: str, into: Any = commands) -> Parser:
        sub: Parser = into.add_parser(name, help=help, description=help, allow_abbrev=False)
        sub.set_defaults(home=(module, function))
        return sub

    def command_group(name: str, help: str, ways: str) -> Any:
        group = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        return group.add_subparsers(dest="way", metavar=ways, required=True, parser_class=Parser)

    _add_app_options(command("app", "serve", "app", "open the lab in the browser"))
    _add_run_options(
        command("run", "commands.run_file", "run", "decode one prompt with a method and show what happened")
    )
    _add_batch_options(
        command(
            "batch",
            "commands.batch",
            "batch",
            "decode many prompts, what several begin with read and held once",
        )
    )
    _add_workload_options(
        command(
            "workload",
            "commands.workload",
            "workload",
            "serve requests with a cache of answers in front of a method",
        )
    )
    _add_calibrate_options(
        command(
            "calibrate", "commands.calibrate", "calibrate", "choose a knob's value so that texts hold a risk"
        )
    )
    sub = command(
        "methods", "commands.methods", "methods", "list the parts that a method is made of, and their knobs"
    )
    _add_json_option(sub).add_argument(
        "--exactness", choices=VALUES, metavar="E", help=f"only parts that are {', '.join(VALUES[:-1])}"
    )
    _add_check_options(
        command("check", "commands.check", "check", "try whether a part keeps what its kind has to keep")
    )
    _add_new_options(
        command("new", "commands.new", "new", "write a part of your own, and its test, to begin from")
    )
    sub = _add_json_option(
        command("models", "commands.models", "models", "list the models that need no download, or fetch one")
    )
    _add_model_commands(command, sub.add_subparsers(dest="way", metavar="get|show", parser_class=Parser))
    sub = command("hardware", "commands.hardware", "hardware", "show what was measured of this machine")
    sub.add_argument("--refresh", action="store_true", help="measure again")
    sub.add_argument(
        "--model", default="lab", metavar="M", help=f"its passes are timed: {MODEL} (default: lab)"
    )
    sub.add_argument(
        "--device",
        type=device,
        metavar="D",
        help="cpu, cuda, cuda:N or mps (default: cuda where there is one)",
    )
    _add_kernels_option(sub)
    _add_data_option(sub)
    _add_json_option(sub)
    _add_price_options(
        command(
            "price",
            "commands.price",
            "price",
            "price a pass by the cost model, next to LLM-Viewer's table",
        )
    )
    sub = command(
        "doctor", "commands.doctor", "doctor", "check the installation and this machine, or examine a draft"
    )
    sub.add_argument(
        "--port",
        type=int_in_range(1, 65535),
        default=7860,
        metavar="P",
        help="port to look at (default: 7860)",
    )
    _add_data_option(sub)
    _add_json_option(sub)
    ways = sub.add_subparsers(dest="way", metavar="draft|pair", parser_class=Parser)
    why = "why a draft is refused: a fault, which one, or a weakness"
    _add_draft_doctor_options(command("draft", "commands.doctor_draft", "draft", why, ways))
    sub = command(
        "pair",
        "commands.doctor_pair",
        "pair",
        "what the files of a target and a draft model say, side by side",
        ways,
    )
    sub.add_argument("--model", required=True, metavar="M", help=MODEL)
    sub.add_argument("--draft", required=True, metavar="M", help="the draft model")
    _add_json_option(sub)

    ways = command_group("trace", "show what a recorded run holds", "show|check|find|fork|export")
    _add_trace_commands(command, ways)
    ways = command_group("cache", "keep a prompt's cache in a file", "save|load")
    _add_save_options(
        command(
            "save", "commands.cache", "save", "read a prompt, and write its cache to a file in few bits", ways
        )
    )
    _add_load_options(
        command(
            "load",
            "commands.cache",
            "load",
            "go on from such a file: decode without reading its prompt",
            ways,
        )
    )
    ways = command_group("measure", "show how much a text repeats itself", "repetition|loops")
    _add_repetition_options(
        command(
            "repetition",
            "commands.measure",
            "repetition",
            "how likely a sentence becomes once it was repeated",
            ways,
        )
    )
    _add_loops_options(
        command(
            "loops",
            "commands.measure",
            "loops",
            "where a text says again what it said; exit code 1 if nowhere",
            ways,
        )
    )
    ways = command_group("train", "train a draft head for a model", "head")
    _add_train_options(
        command(
            "head",
            "commands.train",
            "head",
            "train a draft head on a model's own answers to prompts; a stopped training goes on",
            ways,
        )
    )
    ways = command_group("export", "write a draft head in the layout of another project", "head")
    _add_export_head_options(
        command(
            "head",
            "commands.export",
            "head",
            "write an EAGLE-3 head as speculators or SGLang would have written it",
            ways,
        )
    )
    _add_report_options(
        command("report", "commands.report", "report", "show where drafts are rejected, and what to try")
    )
    sub = command(
        "gallery",
        "commands.gallery",
        "gallery",
        "write runs as a folder of pages for any web server, or to open from disk",
    )
    sub.add_argument("out", metavar="OUT", help="the folder; a new one, or an empty one")
    sub.add_argument(
        "trace", nargs="*", metavar="TRACE", help="traces, or names of examples (default: all examples)"
    )
    sub.add_argument(
        "--course", action="store_true", help="the notebooks too, each run first: a minute or two for each"
    )
    _add_json_option(sub)
    sub = command(
        "notebooks",
        "commands.notebooks",
        "notebooks",
        "copy the course, notebooks for JupyterLab, into a folder of yours",
    )
    sub.add_argument("folder", metavar="DIR", help="the folder; it is made if it is not there")
    _add_json_option(sub)
    _add_bench_options(
        command(
            "bench",
            "commands.bench.bench",
            "bench",
            "measure the methods: against transformers, or on questions with answers",
        )
    )
    return top


def _add_model_commands(command: Callable[..., Parser], ways: Any) -> None:
    sub = command("get", "commands.models", "get", "fetch a model; its size and licence are said first", ways)
    sub.add_argument(
        "name",
        metavar="NAME",
        help="smollm2-135m-instruct, an id of the hub, or ID:FILE of a GGUF file there",
    )
    _add_json_option(sub)
    sub = command(
        "show",
        "commands.models",
        "show",
        "print the shape of a model or what fetching it takes, or how a folder of draft heads is read",
        ways,
    )
    sub.add_argument("name", metavar="M", help=f"{MODEL}; or a folder of draft heads")
    _add_json_option(sub)


def _add_check_options(sub: Parser) -> None:
    sub.add_argument("name", metavar="NAME", help="a part, such as prompt_lookup; see decodescope methods")
    sub.add_argument(
        "--kind", choices=ALL_KINDS, metavar="KIND", help="where parts of two kinds have that name"
    )
    sub.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", help="set a knob of the part; repeatable"
    )
    _add_json_option(sub)


def _add_new_options(sub: Parser) -> None:
    sub.add_argument("kind", choices=ALL_KINDS, metavar="KIND", help=", ".join(ALL_KINDS))
    sub.add_argument("name", metavar="NAME", help="what the part and its file are called, such as my_drafter")
    sub.add_argument("--into", metavar="DIR", help="the folder (default: here, or its places in a checkout)")
    _add_json_option(sub)


def _add_price_options(sub: Parser) -> None:
    sub.add_argument("model", metavar="M", help=f"{MODEL}; or a shape such as llama-2-7b")
    sub.add_argument(
        "--machine", default="a100-80g", metavar="NAME", help="one that `hardware` lists, or here (a100-80g)"
    )
    sub.add_argument(
        "--context",
        type=int_in_range(1, TOKENS),
        default=2048,
        metavar="N",
        help="all positions (default: 2048)",
    )
    sub.add_argument(
        "--prefill", action="store_true", help="a pass that reads all of them (default: adds the last one)"
    )
    sub.add_argument(
        "--sequences",
        type=int_in_range(1, 4096),
        default=1,
        metavar="N",
        help="that share the weights (default: 1)",
    )
    sub.add_argument(
        "--bits", default="16", metavar="W[,A,K]", help="of weights, activations, cache (default: 16)"
    )
    sub.add_argument(
        "--unfused", action="store_true", help="attention writes and reads its scores, in both tables"
    )
    _add_data_option(sub)
    _add_json_option(sub)


def _add_trace_commands(command: Callable[..., Parser], ways: Any) -> None:
    for name, help in (
        ("show", "print what a trace holds; one that is still being written too"),
        ("check", "derive again what a trace claims; exit code 1 if it contradicts itself"),
    ):
        sub = command(name, "commands.shared.trace", name, help, ways)
        sub.add_argument("file", metavar="FILE", help="a trace, sealed or .partial")
        _add_json_option(sub)
    sub = command(
        "find",
        "commands.steps",
        "find",
        "print the steps where a condition holds; exit code 1 if there are none",
        ways,
    )
    sub.add_argument("file", metavar="FILE", help="a trace, sealed or .partial")
    sub.add_argument(
        "condition", metavar="CONDITION", help="such as 'first reject' or 'p/q < 0.1 and depth == 1'"
    )
    _add_json_option(sub)
    _add_fork_options(
        command(
            "fork",
            "commands.steps",
            "fork",
            "repeat a run up to a step, and go on with something changed",
            ways,
        )
    )
    _add_export_options(
        command(
            "export",
            "commands.shared.trace",
            "export",
            "write a trace as one HTML file, as a table, or as trace events",
            ways,
        )
    )


class VersionAction(argparse.Action):
    """--version: print the version of the package and exit."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        print(f"decodescope {__version__}")
        parser.exit()


def _add_json_option(sub: Parser) -> Parser:
    sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return sub


def _add_data_option(sub: Parser) -> None:
    sub.add_argument(
        "--data", metavar="DIR", help="folder of your data (default: the system's place for them)"
    )


def _add_app_options(sub: Parser) -> None:
    sub.add_argument(
        "--model", metavar="M", help=f"{MODEL} (default: one that `models get` fetched, else lab)"
    )
    _add_weights_option(sub)
    _add_model_options(sub, "draft model (default for lab: lab-draft)")
    sub.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)"
    )
    sub.add_argument(
        "--port", type=int_in_range(0, 65535), metavar="P", help="port (default: 7860 or the next free one)"
    )
    _add_access_options(sub)
    sub.add_argument(
        "--allow-get", action="store_true", help="visitors from other machines may fetch models onto this one"
    )
    sub.add_argument("--models", metavar="DIR", help="folder of models that the page offers too")
    _add_device_options(sub)
    sub.add_argument("--no-browser", action="store_true", help="do not open a browser")
    for row in LabLimits().rows():
        sub.add_argument(
            row["option"],
            type=int_in_range(row["low"], row["high"]),
            default=row["usual"],
            metavar=row["unit"],
            help=f"{row['help']} (default: {row['usual']})",
        )
    _add_data_option(sub)


def _add_access_options(sub: Parser) -> None:
    """Who may come in."""
    sub.add_argument(
        "--allow-host",
        metavar="NAME",
        help="name under which others reach the lab; a token is then needed to come in",
    )
    sub.add_argument(
        "--require-token", action="store_true", help="ask visitors of this machine for the printed token too"
    )
    sub.add_argument(
        "--users", metavar="FILE", help="names and passwords of those who may come in; --add-user writes them"
    )
    sub.add_argument(
        "--add-user",
        metavar="NAME",
        help="ask for a password, write it and the name into the file of --users, and open no lab",
    )
    sub.add_argument(
        "--root-path", metavar="PREFIX", help="path below which a reverse proxy serves the lab, such as /lab"
    )
    sub.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network of a proxy whose X-Forwarded headers are believed; repeatable",
    )
    sub.add_argument(
        "--user-header",
        metavar="HEADER",
        help="header in which that proxy says who asks, such as X-Remote-User",
    )
    sub.add_argument("--secure", action="store_true", help="visitors always come by https")


def _add_fork_options(sub: Parser) -> None:
    sub.add_argument(
        "file", metavar="FILE", help="the trace of the run, recorded at the trace level decisions"
    )
    sub.add_argument(
        "--step",
        type=int_in_range(0, TOKENS),
        required=True,
        metavar="N",
        help="the first step that goes otherwise",
    )
    sub.add_argument("--trace", required=True, metavar="OUT", help="record the fork to this file")
    sub.add_argument(
        "--force",
        action="append",
        default=[],
        type=forced_verdict,
        metavar="accept:NODE",
        help="settle a drafted node of that step beforehand, or reject:NODE; repeatable",
    )
    sub.add_argument("--name", default="", metavar="TEXT", help="name of the fork")
    sub.add_argument(
        "--seed",
        type=int_in_range(0, SEEDS),
        metavar="S",
        help="of every draw from there on (default: the run's)",
    )
    sub.add_argument(
        "--max-new-tokens",
        type=int_in_range(1, TOKENS),
        metavar="N",
        help="longest text (default: the run's)",
    )
    sub.add_argument("--model", metavar="M", help="the run's model (default: by the name in the trace)")
    _add_weights_option(sub)
    _add_model_options(sub, "its draft model, or one for the change (default: by the name in the trace)")
    _add_head_options(sub)
    sub.add_argument(
        "--then-draft",
        metavar="M",
        help="the draft model from that step on, of the same sizes as the run's: a repaired one",
    )
    sub.add_argument(
        "--then-head",
        action="append",
        type=name_and_path,
        metavar="NAME=PATH",
        help="draft heads of that kind from that step on; repeatable",
    )
    _add_part_options(sub)
    sub.add_argument(
        "--device",
        type=device,
        metavar="D",
        help="cpu, cuda, cuda:N or mps (default: cuda where there is one)",
    )
    _add_threads_option(sub, "as torch has it")
    _add_json_option(sub)


def _add_weights_option(sub: Parser) -> None:
    sub.add_argument("--weights", metavar="W", help=f"{WEIGHTS}; see decodescope methods")


def _add_device_options(sub: Parser, threads: str = "as timing says, or OMP_NUM_THREADS") -> None:
    """Where and how passes run; `threads`: their default number, in words."""
    sub.add_argument(
        "--dtype",
        choices=DTYPES,
        metavar="D",
        help=f"{', '.join(DTYPES)} (default: float32 for shipped models, bfloat16 for GGUF files, else the file's own)",
    )
    sub.add_argument(
        "--device",
        type=device,
        metavar="D",
        help="cpu, cuda, cuda:N or mps (default: cuda where there is one)",
    )
    _add_threads_option(sub, threads)
    _add_kernels_option(sub)


def _add_kernels_option(sub: Parser) -> None:
    sub.add_argument(
        "--kernels",
        choices=("rows", "torch", "triton"),
        metavar="K",
        help="rows, torch or triton: whose arithmetic passes take, kernels on a CPU that compute each row alike however "
        "many there are, torch's, or such kernels on CUDA (default: rows, torch on CUDA and where numba is missing)",
    )


def _add_threads_option(sub: Parser, usual: str) -> None:
    sub.add_argument(
        "--threads", type=int_in_range(1, 1024), metavar="N", help=f"threads of a pass (default: {usual})"
    )


def _add_method_options(sub: Parser, required: bool = True) -> None:
    """The model and the method's parts, for the commands that decode."""
    sub.add_argument("--model", required=required, metavar="M", help=MODEL)
    _add_weights_option(sub)
    _add_model_options(sub, "draft model, for methods that use one")
    _add_head_options(sub)
    _add_part_options(sub)


def _add_head_options(sub: Parser) -> None:
    sub.add_argument(
        "--head",
        action="append",
        type=name_and_path,
        metavar="NAME=PATH",
        help="draft heads from another folder, or of a hub id",
    )
    sub.add_argument(
        "--allow-pickle", action="store_true", help="read published heads from a pickle file, tensors only"
    )


def _add_model_options(sub: Parser, draft: str, where: str = "") -> None:
    """The further models, by role; `draft`: help of the draft model, `where`: the commands that take the others."""
    sub.add_argument("--draft", metavar="M", help=draft)
    sub.add_argument(
        "--draft-weights", metavar="W", help="the same of the draft model as --weights of the model"
    )
    for further in DRAFTS[1:]:
        sub.add_argument(
            f"--{further}", metavar="M", help=f"{where}a further one, for methods that use several"
        )
    more = f"{where}a model in a role that a part asks for; repeatable"
    sub.add_argument("--role", action="append", type=role_and_model, metavar="ROLE=NAME", help=more)


def _add_part_options(sub: Parser) -> None:
    """The parts of a method and their knobs."""
    for kind, what in (
        ("drafter", "what is guessed"),
        ("schedule", "how long a guess gets"),
        ("acceptance", "how much of a guess is kept"),
        ("prompt_compression", "what of the prompt is read"),
        ("policy", "which KV entries stay"),
        ("kv_compression", "how those are stored"),
        ("adaptive_depth", "which layers run"),
        ("unmasking", "which places of a canvas are committed"),
        ("router", "which of two models writes"),
        ("guidance", "what changes the target's distribution"),
        ("strategy", "what one step is"),
    ):
        sub.add_argument(option(kind), metavar="NAME", help=f"{what}; see decodescope methods")
    sub.add_argument(
        "--sampler", metavar="NAME[,NAME...]", help="samplers, applied in this order (default: greedy)"
    )
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PART.knob=value",
        help="a knob; PART is a kind, or a chained sampler",
    )


def _add_run_options(sub: Parser) -> None:
    _add_method_options(sub)
    _add_prompt_options(sub, many=True)
    _add_decoding_options(sub)
    sub.add_argument(
        "--reference",
        nargs="?",
        const="cache",
        choices=("cache", "model"),
        metavar="WHO",
        help="also run a reference that keeps everything: cache (if not given), the full KV cache; model, the original "
        "weights. --trace then records lost attention mass and drift",
    )


def _add_export_options(sub: Parser) -> None:
    sub.add_argument("file", metavar="FILE", help="a trace, sealed or .partial")
    sub.add_argument("--html", metavar="OUT", help="one HTML file that replays the run, offline")
    sub.add_argument("--perfetto", metavar="OUT", help="its timing as trace events, for ui.perfetto.dev")
    sub.add_argument(
        "--csv", metavar="OUT", help="its decisions as a table, a row for each drafted or own token"
    )
    _add_json_option(sub)


def _add_export_head_options(sub: Parser) -> None:
    sub.add_argument(
        "name",
        metavar="HEAD",
        help="eagle3, the head in the model's folder; or a folder or hub id of another",
    )
    sub.add_argument("out", metavar="OUT", help="the folder; one that exists is refused")
    sub.add_argument("--model", required=True, metavar="M", help=f"{MODEL}: the head's target")
    sub.add_argument(
        "--as",
        dest="layout",
        required=True,
        choices=("speculators", "sglang"),
        metavar="L",
        help="speculators or sglang",
    )
    _add_device_options(sub)
    _add_json_option(sub)


def _add_save_options(sub: Parser) -> None:
    sub.add_argument("file", metavar="OUT", help="the file; one that exists is refused")
    sub.add_argument("--model", required=True, metavar="M", help=MODEL)
    _add_weights_option(sub)
    _add_prompt_options(sub)
    sub.add_argument(
        "--quality",
        choices=("coarse", "middle", "fine"),
        default="middle",
        metavar="Q",
        help="coarse, middle or fine (middle)",
    )
    _add_device_options(sub)
    _add_json_option(sub)


def _add_load_options(sub: Parser) -> None:
    sub.add_argument("file", metavar="FILE", help="a file that `cache save` wrote")
    _add_method_options(sub)
    sub.add_argument(
        "--prompt", default="", metavar="TEXT", help="text behind the saved prompt, which is read (none)"
    )
    _add_decoding_options(sub)


def _add_prompt_options(sub: Parser, many: bool = False) -> None:
    text = sub.add_mutually_exclusive_group(required=True)
    text.add_argument("--prompt", metavar="TEXT", help="the prompt")
    holds = "; a .jsonl file holds many, decoded as batch does" if many else ""
    text.add_argument(
        "--prompt-file", metavar="F", help="a UTF-8 file that holds it; - is standard input" + holds
    )
    text.add_argument(
        "--messages",
        metavar="FILE",
        help="a JSON file of messages, as the OpenAI API has them, perhaps with tools; - is standard input",
    )
    text.add_argument(
        "--ids", metavar="IDS", help="its token ids, with commas or spaces between them; or @FILE"
    )
    sub.add_argument(
        "--chat", action="store_true", help="put the prompt as a user's turn, by the model's template"
    )
    _add_marks_option(sub)


def _add_marks_option(sub: Parser) -> None:
    """How special tokens in plain text are read."""
    sub.add_argument(
        "--marks",
        action="store_true",
        help="read special tokens in a text that a template has made already, and put nothing before it",
    )


def _add_decoding_options(sub: Parser) -> None:
    """The length of a run, and what of it is recorded."""
    _add_length_option(sub)
    sub.add_argument("--ignore-eos", action="store_true", help="go on after the model's end token")
    sub.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end when the text holds this; repeatable"
    )
    sub.add_argument(
        "--seed",
        type=int_in_range(0, SEEDS),
        default=0,
        metavar="S",
        help="of every random draw (default: 0)",
    )
    _add_device_options(sub)
    sub.add_argument("--trace", metavar="OUT", help="record the run to this file")
    sub.add_argument(
        "--trace-level",
        choices=LEVELS,
        metavar="LEVEL",
        help=f"of --trace: {', '.join(LEVELS)} (default: decisions)",
    )
    sub.add_argument(
        "--layers",
        type=layer_list,
        metavar="N,N",
        help="whose attention --trace-level full records (default: all)",
    )
    _add_json_option(sub)


def _add_batch_options(sub: Parser) -> None:
    _add_method_options(sub)
    sub.add_argument(
        "--prompts", required=True, metavar="F", help="a prompt a line, or .jsonl; - is standard input"
    )
    sub.add_argument(
        "--chat", action="store_true", help="put each prompt as a user's turn, by the model's template"
    )
    _add_marks_option(sub)
    sub.add_argument("--ignore-eos", action="store_true", help="go on after the model's end token")
    sub.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end a text that holds this; repeatable"
    )
    sub.add_argument(
        "--seed", type=int_in_range(0, SEEDS), default=0, metavar="S", help="of the first prompt (default: 0)"
    )
    sub.add_argument(
        "--texts",
        type=int_in_range(1, 1024),
        default=TEXTS,
        metavar="N",
        help="texts of a pass, at most (32)",
    )
    sub.add_argument(
        "--traces", metavar="DIR", help="record each text to a file of its own in this new folder"
    )
    sub.add_argument(
        "--trace-level",
        choices=LEVELS,
        metavar="LEVEL",
        help="of --traces, as for run (default: decisions)",
    )
    sub.add_argument(
        "--plan-only", action="store_true", help="say which prompts share what, and decode nothing"
    )
    sub.add_argument("--out", metavar="OUT", help="write the texts to this file, as JSON lines")
    _add_length_option(sub)
    _add_device_options(sub)
    _add_json_option(sub)


def _add_workload_options(sub: Parser) -> None:
    _add_method_options(sub)
    sub.add_argument(
        "--prompts", required=True, metavar="F", help="a prompt a line, or .jsonl; - is standard input"
    )
    sub.add_argument(
        "--chat", action="store_true", help="put each prompt as a user's turn, by the model's template"
    )
    sub.add_argument(
        "--requests",
        type=int_in_range(1, TOKENS),
        default=100,
        metavar="N",
        help="how many come (default: 100)",
    )
    sub.add_argument(
        "--zipf",
        type=float_in_range(0, 10),
        default=1.0,
        metavar="S",
        help="prompt i is asked for as i^-S (default: 1; 0: all alike)",
    )
    sub.add_argument(
        "--capacity",
        type=int_in_range(1, TOKENS),
        default=1024,
        metavar="N",
        help="tokens that are held, prompts too (default: 1024)",
    )
    rules = "lec", "gdsf", "lru"
    sub.add_argument(
        "--evicts", choices=rules, default="lec", metavar="NAME", help="lec, gdsf or lru (default: lec)"
    )
    sub.add_argument("--ignore-eos", action="store_true", help="go on after the model's end token")
    sub.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end a text that holds this; repeatable"
    )
    sub.add_argument(
        "--seed",
        type=int_in_range(0, SEEDS),
        default=0,
        metavar="S",
        help="of requests and draws (default: 0)",
    )
    sub.add_argument("--out", metavar="OUT", help="write the requests to this file, as JSON lines")
    sub.add_argument(
        "--html", metavar="OUT", help="draw them in one HTML file: hits, what went and why, what was saved"
    )
    _add_length_option(sub)
    _add_device_options(sub)
    _add_json_option(sub)


def _add_calibrate_options(sub: Parser) -> None:
    _add_method_options(sub)
    how = f"a number by {HOWS[0]}, or thresholds by exit: {', '.join(HOWS[1:])} (default: {HOWS[0]})"
    sub.add_argument("--how", choices=HOWS, default=HOWS[0], metavar="H", help=how)
    sub.add_argument(
        "--knob", metavar="PART.knob", help="tested: a number of a part, such as adaptive_depth.threshold"
    )
    sub.add_argument("--grid", metavar="A:B:N", help="tested: N values from the safe A to B, or with commas")
    sub.add_argument("--texts", required=True, metavar="F", help="a prompt a line, .jsonl, or labbench")
    sub.add_argument(
        "--name", required=True, metavar="NAME", help="under which it is kept, or FOLDER/NAME.json"
    )
    risks = ("edit", "differs", "task")
    sub.add_argument(
        "--risk", choices=risks, metavar="R", help="tested: edit, differs or task (default: edit)"
    )
    sub.add_argument(
        "--delta",
        type=float_in_range(0, 1),
        metavar="D",
        help="tested: the risk is at most this (default: 0.1)",
    )
    sub.add_argument(
        "--eps",
        type=float_in_range(0, 1),
        default=0.05,
        metavar="E",
        help="chance that it is not (default: 0.05)",
    )
    sub.add_argument(
        "--whole", action="store_true", help="tested: decode the values behind the first that failed, too"
    )
    sub.add_argument("--short", action="store_true", help="of labbench: the first 8 questions of each kind")
    sub.add_argument(
        "--chat", action="store_true", help="put each prompt as a user's turn, by the model's template"
    )
    sub.add_argument(
        "--seed", type=int_in_range(0, SEEDS), default=0, metavar="S", help="of the first text (default: 0)"
    )
    _add_length_option(sub)
    _add_device_options(sub)
    _add_json_option(sub)


def _add_length_option(sub: Parser) -> None:
    sub.add_argument(
        "--max-new-tokens",
        type=int_in_range(1, TOKENS),
        default=64,
        metavar="N",
        help="longest text, in tokens (default: 64)",
    )


def _add_report_options(sub: Parser) -> None:
    sub.add_argument(
        "file", nargs="*", metavar="FILE", help="recorded traces of one method; or give --prompts"
    )
    sub.add_argument(
        "--prompts", metavar="F", help="decode these first: a prompt a line, .jsonl, or labbench"
    )
    sub.add_argument("--short", action="store_true", help="of labbench: the first 8 questions of each kind")
    sub.add_argument("--traces", metavar="DIR", help="keep the runs over the prompts in this folder")
    sub.add_argument(
        "--batch",
        type=int_in_range(1, 1024),
        default=1,
        metavar="N",
        help="prompts decoded at a time (default: 1)",
    )
    _add_method_options(sub, required=False)
    sub.add_argument(
        "--chat", action="store_true", help="put prompts as a user's turn, by the model's template"
    )
    _add_length_option(sub)
    sub.add_argument(
        "--seed", type=int_in_range(0, SEEDS), default=0, metavar="S", help="of the first prompt (default: 0)"
    )
    _add_device_options(sub)
    sub.add_argument("--html", metavar="OUT", help="write the report to one HTML file too")
    sub.add_argument(
        "--csv", metavar="OUT", help="write acceptance by position too, as the evaluation of speculators does"
    )
    sub.add_argument(
        "--machine",
        metavar="NAME",
        help="price the advice for a machine that `hardware` lists (default: the runs' own)",
    )
    sub.add_argument(
        "--sequences",
        type=int_in_range(1, 4096),
        default=1,
        metavar="N",
        help="texts that this machine decodes at a time (default: 1)",
    )
    sub.add_argument(
        "--beside", nargs="+", default=[], metavar="FILE", help="traces of another method, to compare with"
    )
    sub.add_argument(
        "--fail-below",
        type=float_in_range(0, 1),
        metavar="R",
        help="exit code 1 if tokens per pass are below R times those of --beside, and surely fewer",
    )
    sub.add_argument(
        "--apart",
        action="store_true",
        help="a report for each way in which prompts were put: raw, first turns, later turns",
    )
    sub.add_argument("--metrics", action="store_true", help="print a flat JSON object of numbers instead")
    _add_json_option(sub)


def _add_repetition_options(sub: Parser) -> None:
    sub.add_argument("--model", default="lab", metavar="M", help=f"{MODEL} (default: lab)")
    _add_weights_option(sub)
    sub.add_argument(
        "--sentences",
        type=int_in_range(1, 10_000),
        default=200,
        metavar="N",
        help="how many are read (default: 200)",
    )
    sub.add_argument(
        "--times", type=int_in_range(2, 1000), default=16, metavar="N", help="copies of each (default: 16)"
    )
    sub.add_argument(
        "--text",
        metavar="F",
        help="UTF-8 prose, a paragraph a line (default: text like that of lab's training)",
    )
    sub.add_argument("--out", metavar="OUT", help="write the result to this file, as JSON")
    sub.add_argument(
        "--html", metavar="OUT", help="draw it in one HTML file: the curves, and one sentence token by token"
    )
    _add_device_options(sub, "as torch has it")
    _add_json_option(sub)


def _add_train_options(sub: Parser) -> None:
    sub.add_argument("kind", metavar="KIND", help="kind of the head, such as eagle3; see docs/heads.md")
    sub.add_argument("--model", required=True, metavar="M", help=MODEL)
    _add_weights_option(sub)
    sub.add_argument(
        "--prompts",
        required=True,
        metavar="FILE",
        help="one prompt a line, or one JSON object a line in a .jsonl file; labbench: its questions",
    )
    sub.add_argument("--chat", action="store_true", help="put every prompt through the model's chat template")
    sub.add_argument(
        "--out",
        metavar="DIR",
        help="folder of the training; the same folder goes on with it (default: in your data, by model and kind)",
    )
    for name, low, high, usual, what in (
        ("--tokens", 1, 10**9, 200_000, "tokens of answers to learn from, each as often as it is read"),
        ("--answer-tokens", 2, 8192, 256, "longest answer"),
        (
            "--window",
            8,
            8192,
            512,
            "longest prompt and answer together; prompts that leave no room are left out",
        ),
        ("--batch-tokens", 8, TOKENS, 2048, "tokens that a step reads"),
        ("--every", 1, TOKENS, 50, "steps between two measurements on held-out prompts"),
        ("--seed", 0, SEEDS, 0, "of everything that is drawn"),
    ):
        sub.add_argument(
            name, type=int_in_range(low, high), default=usual, metavar="N", help=f"{what} (default: {usual})"
        )
    for name, what in (
        ("--rank", "rank of a map of the head (default: by kind)"),
        ("--d-ff", "width of its feed-forward block (default: by kind and model)"),
        ("--kept-tokens", "size of its draft vocabulary (default: 8192, at most half of the model's)"),
    ):
        sub.add_argument(name, type=int_in_range(1, 65536), metavar="N", help=what)
    for name, least, most, rate, what in (
        ("--temperature", 0.0, 5.0, 0.7, "of the answers; 0 is greedy"),
        ("--lr", 1e-6, 1.0, 4e-3, "highest learning rate of norms and biases"),
        ("--muon", 1e-6, 1.0, 3e-3, "highest learning rate of matrices"),
    ):
        sub.add_argument(
            name,
            type=float_in_range(least, most),
            default=rate,
            metavar="X",
            help=f"{what} (default: {rate:g})",
        )
    sub.add_argument("--html", metavar="OUT", help="draw the training in one HTML file")
    _add_device_options(sub, "as torch has it")
    _add_json_option(sub)


def _add_draft_doctor_options(sub: Parser) -> None:
    sub.add_argument("--model", required=True, metavar="M", help=MODEL)
    sub.add_argument("--draft", metavar="M", help="the draft model; this or --head")
    sub.add_argument(
        "--head",
        type=name_and_path,
        metavar="NAME=PATH",
        help="draft heads of that kind, from a folder or of a hub id",
    )
    sub.add_argument(
        "--allow-pickle", action="store_true", help="read published heads from a pickle file, tensors only"
    )
    sub.add_argument(
        "--prompts",
        required=True,
        metavar="FILE",
        help="one prompt a line, or one JSON object a line in a .jsonl file; labbench: its questions",
    )
    for name, low, high, usual, what in (
        ("--most", 1, 10_000, 16, "prompts that are read, the first of the file"),
        ("--answer-tokens", 4, 4096, 64, "longest answer"),
        ("--window", 16, 65536, 1024, "longest prompt and answer together; longer prompts are left out"),
    ):
        sub.add_argument(
            name, type=int_in_range(low, high), default=usual, metavar="N", help=f"{what} (default: {usual})"
        )
    sub.add_argument(
        "--distil",
        action="store_true",
        help="train a copy of the draft on half of the texts, measure it on the others; a weak draft is always",
    )
    sub.add_argument("--out", metavar="OUT", help="write the result to this file, as JSON")
    sub.add_argument("--html", metavar="OUT", help="write a picture of the result to this file")
    _add_device_options(sub, "as torch has it")
    _add_json_option(sub)


def _add_loops_options(sub: Parser) -> None:
    what = "a trace (its written tokens count), or a UTF-8 text; - is standard input"
    sub.add_argument("file", metavar="FILE", help=what)
    sub.add_argument(
        "--model", default="lab", metavar="M", help="whose tokenizer reads a text (default: lab)"
    )
    sub.add_argument(
        "--grams",
        type=int_in_range(1, 1000),
        default=4,
        metavar="N",
        help="tokens that must be the same (default: 4)",
    )
    _add_json_option(sub)


def _add_bench_options(sub: Parser) -> None:
    sub.add_argument(
        "what",
        nargs="?",
        choices=BENCHES,
        default="decode",
        help="decode: against transformers; labbench: right answers; speculation: all that drafts; kv: all that shrinks the "
        "cache; parallel: all that fills a canvas; depth: all that leaves layers out; cascade: all that "
        "lets a smaller model write; cloze: exits of a model that reads both sides; words: samplers and searches; "
        "prompts: what is left of a prompt; models: transforms of weights (decode)",
    )
    sub.add_argument(
        "--model", metavar="M", help=f"{MODEL} (default: lab, for parallel lab-mdm, for cloze lab-mdm+cloze)"
    )
    _add_weights_option(sub)
    _add_model_options(
        sub, "draft model, or none (default for lab: lab-draft)", "labbench, speculation, words, prompts: "
    )
    _add_device_options(sub, "as torch has it")
    sub.add_argument(
        "--new-tokens",
        type=int_in_range(2, 4096),
        metavar="N",
        help="tokens of a text (default: 128; kv: those whose price is taken); the most of an answer in labbench (default: by "
        "kind), depth, cascade, words (the same), speculation (default: 40)",
    )
    sub.add_argument(
        "--repeats",
        type=int_in_range(1, 1000),
        metavar="N",
        help="decode, speculation: rounds (default: 5, 3)",
    )
    sub.add_argument(
        "--prompt-file", metavar="F", help="decode: your own prompt instead of the built-in ones"
    )
    sub.add_argument(
        "--trace-level",
        choices=("none", *LEVELS),
        metavar="LEVEL",
        help="decode: what our side records (default: summary)",
    )
    sub.add_argument(
        "--questions", metavar="F", help="of all but decode, parallel, cloze: Spec-Bench's format (ours)"
    )
    sub.add_argument(
        "--short",
        action="store_true",
        default=None,
        help="labbench: the first 8 questions of each kind; speculation: 1 of each kind; kv: 1 text of each kind, 4 pass keys; "
        "parallel: 4 questions of each task; depth, cascade, words, prompts: 2 of each kind",
    )
    sub.add_argument(
        "--method",
        action="append",
        metavar="NAME[=RECIPE]",
        help="all but decode: one to compare, by name or with the words, link or JSON of a recipe; repeatable",
    )
    sub.add_argument(
        "--temperature",
        type=float_in_range(0, 5),
        metavar="T",
        help="labbench: of all methods (default: 0, greedy); speculation: of those that draw (default: 0.8; 0: none do)",
    )
    sub.add_argument(
        "--seed",
        type=int_in_range(0, SEEDS),
        metavar="S",
        help="of every draw, of all but decode, kv and cloze (0)",
    )
    sub.add_argument(
        "--batch",
        type=int_in_range(1, 1024),
        metavar="N",
        help="labbench: answers written at a time (default: 1)",
    )
    sub.add_argument(
        "--random",
        type=parameter_count,
        metavar="N",
        help="models: time passes of N random weights, such as 300M",
    )
    sub.add_argument("--out", metavar="OUT", help="all but decode: write the result to this file, as JSON")
    resume = "all but decode: go on with what OUT.partial holds"
    sub.add_argument("--resume", action="store_true", default=None, help=resume)
    _add_json_option(sub)
