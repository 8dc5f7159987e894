"""What hangs on the weights of `lab`, made anew for new ones: drafts, heads, adapters, examples, cards.

    python -m decodescope.training.rebuild                    what there is, and whether it was made for these weights
    python -m decodescope.training.rebuild make               make what is missing, one piece after the other
    python -m decodescope.training.rebuild make eagle hydra   some of it
    python -m decodescope.training.rebuild rehearse           run every command with a tiny budget, put back what it wrote

A piece is made by the commands listed with it, which write it into the model's folder, or where else the repository keeps it.
`build/training/followed.json` records for which weights each piece was made, so that the same command goes on where it was
stopped. Heads and adapters begin with the shipped ones: the states that they read move, and what they learnt of the language
stays. FOLLOW.md next to this script lists what only a person can write again.

Minutes are those of one thread of an AMD EPYC with AVX-512 and bfloat16 instructions that nothing else keeps busy, computed
from the processor time of rehearsals. Budgets are tokens and steps, not minutes, so that a busy machine makes the same later;
`--within` together with steps is only a limit. Pieces that are marked "alone" measure times: they are made where they are
named, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .data import BUILD, ROOT
from .train import MODELS

DONE = BUILD / "followed.json"


@dataclass(frozen=True)
class Artifact:
    """How a piece is made.

    minutes: of one thread, about
    commands: from the root of the repository, the words behind `python`; {name}, {threads}, {fresh}, {kept} are filled in
    small: words that let the first command end within a minute; its results are discarded
    alone: it measures times
    reads: models whose weights it depends on
    """

    minutes: int
    commands: tuple[str, ...]
    small: str = ""
    alone: bool = False
    reads: tuple[str, ...] = ("lab",)


def module_artifact(
    minutes: int, command: str, small: str = "", reads: tuple[str, ...] = ("lab",)
) -> Artifact:
    """One that a single module of training makes."""
    return Artifact(
        minutes, (f"-m decodescope.training.{command} --threads {{threads}}",), small, reads=reads
    )


def draft_artifact(minutes: int, more: str = "") -> Artifact:
    """A draft model that is trained further.

    {fresh}: a checkpoint that was not begun for these weights is deleted, since another teacher taught it.
    """
    return module_artifact(
        minutes,
        f"train {{name}} {more}--from assets/models/{{name}} --tokens 3 --cooldown 1 {{fresh}}",
        "--tokens 0.01 --cooldown 0.005 --as rehearsed-{name} --fresh",
    )


def heads_artifact(minutes: int, tokens: float) -> Artifact:
    """Draft heads of a kind."""
    return module_artifact(
        minutes,
        f"heads {{name}} --from assets/models/lab/heads --text 0.4 --tokens {tokens}",
        "--text 0.004 --tokens 0.005 --unseen 8",
    )


def cache_artifact(minutes: int, steps: int) -> Artifact:
    """A part of the cache."""
    return module_artifact(
        minutes,
        f"cacheparts {{name}} --from assets/models/lab/heads --steps {steps} --within 60",
        "--steps 4",
    )


def adapter_artifact(minutes: int, steps: int, texts: int = 320) -> Artifact:
    """An adapter."""
    words = f"adapters {{name}} --from assets/models/lab/adapters --steps {steps} --within 90 --texts {texts}"
    return module_artifact(minutes, words, "--steps 4 --texts 16")


BOTH, ALL = ("lab", "lab-draft"), ("lab", "lab-draft", "lab-draft-plain")
PIECES = {
    "lab-draft": draft_artifact(42, "--teacher assets/models/lab "),
    "lab-draft-plain": draft_artifact(13),
    "eagle": heads_artifact(14, 3),  # which lets the model write the text that the others read too
    "eagle3": heads_artifact(11, 2.4),
    "hydra": heads_artifact(7, 2),
    "medusa": heads_artifact(5, 1.5),
    "blockwise": heads_artifact(6, 4),
    "mlp_speculator": heads_artifact(7, 2),
    "kangaroo": heads_artifact(5, 1.2),
    "redrafter": heads_artifact(5, 1.2),
    "ppd": module_artifact(
        8,
        "ppd --from assets/models/lab/heads --ensemble 4 --steps 450 --lr 0.1 --text 0.4",
        "--steps 4 --text 0.004 --unseen 8",
    ),
    "cerberus": Artifact(1, ("-m decodescope.training.cerberus --text 0.4",), "--text 0.004 --unseen 8"),
    "exits": Artifact(6, ("-m decodescope.training.exits --tokens 1 --lr 1e-3",), "--tokens 0.01"),
    "ntk_attention": cache_artifact(5, 400),
    "compress_then_prompt": cache_artifact(6, 150),
    "duo_attention": cache_artifact(6, 250),
    "cllm": adapter_artifact(14, 200),
    "ditto": adapter_artifact(5, 150),
    "lud": adapter_artifact(12, 200, 512),
    "outline": adapter_artifact(10, 160),
    "skipdecode": adapter_artifact(11, 300),
    "skip_layer": module_artifact(
        9, "skip_layer --from assets/models/lab --steps 450 --within 90", "--steps 4"
    ),
    "specdec": module_artifact(
        5,
        "specdec --from assets/models/lab-draft/heads --text 0.4 --epochs 2",
        "--text 0.004 --epochs 1 --unseen 8 --asked 1",
        BOTH,
    ),
    "correctness": Artifact(
        4,
        ("-m decodescope.training.correctness --prompts 110 --steps 1500",),
        "--prompts 2 --unseen 2 --steps 5",
        reads=BOTH,
    ),
    "prompts": Artifact(1, ("benchmarks/examples.py --write",)),
    "presets": Artifact(2, ("benchmarks/presets.py --write",), "plain", reads=ALL),
    "traces": Artifact(5, ("assets/traces/make.py --old",), "eagle", reads=ALL),
    "card": module_artifact(12, "evaluate", "--windows 1 --questions 1", ALL),
    "speculation": Artifact(
        40,
        (
            "-m decodescope bench speculation --draft2 lab-draft-plain --dtype bfloat16 --threads 2 --new-tokens 40 --repeats "
            "2 --temperature 0.8 --seed 0 --short --out {kept}/speculation.json",
            "benchmarks/speculation.py {kept}/speculation.json --write",
        ),
        "--method autoregressive",
        True,
        ALL,
    ),
    "replayed": Artifact(
        15,
        (
            "benchmarks/replayed.py record --draft2 lab-draft-plain --new-tokens 24 --threads 1 --out {kept}/steps.json",
            "benchmarks/replayed.py measure {kept}/steps.json --out {kept}/costs.json --threads 1 --rounds 5",
            "benchmarks/replayed.py price {kept}/steps.json {kept}/costs.json --write",
        ),
        "--questions 1",
        True,
        ALL,
    ),
    "pictures": Artifact(3, ("scripts/pictures.py",), "lab", reads=ALL),
}


def commands(name: str, threads: int, fresh: bool = True) -> list[list[str]]:
    """The commands that make a piece, from the root of the repository.

    fresh: it was not begun for these weights before
    """
    filled = {
        "name": name,
        "threads": threads,
        "fresh": "--fresh" if fresh else "",
        "kept": work_folder(name),
    }
    return [[sys.executable, *shlex.split(words.format(**filled))] for words in PIECES[name].commands]


def work_folder(name: str) -> Path:
    """The folder of what a piece measures on the way."""
    return (BUILD / "followed" / name).relative_to(ROOT)


def read_notes() -> dict[str, dict[str, str]]:
    """By "begun" and "made": piece -> the `weights_mark` for which that was last so."""
    return {"begun": {}, "made": {}} | (json.loads(DONE.read_text()) if DONE.exists() else {})


def weights_mark(name: str) -> str:
    """The fingerprints of the weights that a piece depends on, as they are in the folder."""
    from decodescope.engine.session.load import fingerprint

    return " ".join(fingerprint(MODELS / x) for x in PIECES[name].reads)


def note(what: str, name: str, made_for: str) -> None:
    """Keep that a piece was begun, or made, for these weights."""
    found = read_notes()
    found[what][name] = made_for
    DONE.write_text(json.dumps(found, indent=2) + "\n")


def run_commands(name: str, words: Iterable[list[str]]) -> None:
    """Run the commands of a piece. SystemExit at the first that fails."""
    shutil.rmtree(ROOT / work_folder(name), ignore_errors=True)
    (ROOT / work_folder(name)).mkdir(parents=True)
    for command in words:
        print(f"== {name}: {shlex.join(command[1:])}", flush=True)
        if code := subprocess.run(command, cwd=ROOT).returncode:
            raise SystemExit(
                f"{name} was not made: its command ended with {code}. Mend that, then give the same words again."
            )


def make(names: list[str], threads: int) -> None:
    """Make what is missing of these pieces, in order, and note each. SystemExit at the first that fails: others may read it."""
    for name in names:
        began = time.time()
        made_for = weights_mark(name)  # now: a piece before it may be a draft that it reads
        if read_notes()["made"].get(name) == made_for:
            continue
        fresh = read_notes()["begun"].get(name) != made_for
        note("begun", name, made_for)
        run_commands(name, commands(name, threads, fresh))
        note("made", name, made_for)
        print(f"== {name} took {(time.time() - began) / 60:.1f} minutes", flush=True)


def changed_paths() -> list[str]:
    """What git finds changed or new, but for what it ignores; a folder that is new is one."""
    said = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [line[3:] for line in said.splitlines()]


def rehearse(names: list[str], threads: int) -> None:
    """Run the commands of pieces with next to no budget, print what each wrote, load the models, and put all back as it was.

    SystemExit where something is not committed: it would be put back too.
    """
    if changed_paths():
        raise SystemExit(
            "A rehearsal puts back all that is not committed: commit it first, or rehearse in another checkout."
        )
    load = "from decodescope.engine import load; [load(x, device='cpu') for x in ('lab', 'lab-draft'{})]"
    for name in names:
        began, words = time.time(), commands(name, threads)
        words[0] += shlex.split(PIECES[name].small.format(name=name))
        try:
            run_commands(name, words)
            adapter = f", 'lab+{name}'" if (MODELS / "lab" / "adapters" / name).exists() else ""
            subprocess.run([sys.executable, "-c", load.format(adapter)], cwd=ROOT, check=True)
            print(
                f"== {name} took {time.time() - began:.0f} s and wrote {', '.join(changed_paths()) or 'nothing'}",
                flush=True,
            )
        finally:
            subprocess.run(["git", "checkout", "--quiet", "--", "."], cwd=ROOT, check=True)
            subprocess.run(["git", "clean", "--quiet", "-fd"], cwd=ROOT, check=True)


def main() -> None:
    """Say what there is, make what is missing, or rehearse."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "what", nargs="?", choices=("make", "rehearse"), help="make what is missing; or try all commands"
    )
    parser.add_argument(
        "names", nargs="*", metavar="PIECE", help=f"of {', '.join(PIECES)}; without one all but those alone"
    )
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if strange := [name for name in args.names if name not in PIECES]:
        parser.error(f"there is no piece {strange[0]!r}: choose of {', '.join(PIECES)}")
    names = [x for x in PIECES if x in args.names or not (args.names or PIECES[x].alone)]
    if args.what == "rehearse":
        rehearse(names, args.threads)
    elif args.what == "make":
        make(names, args.threads)
    else:
        before = read_notes()["made"]
        for name, one in PIECES.items():
            state = "made" if before.get(name) == weights_mark(name) else "to be made"
            words = "; ".join(shlex.join(x[1:]) for x in commands(name, args.threads))
            print(f"{name:22} {state:11} {one.minutes:3} min  {words}{'  (alone)' if one.alone else ''}")
        total = sum(x.minutes for x in PIECES.values() if not x.alone)
        print(
            f"{total} minutes of one thread, without those alone. What a person has to write anew: training/FOLLOW.md"
        )


if __name__ == "__main__":
    main()
