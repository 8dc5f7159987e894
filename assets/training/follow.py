"""What hangs on the weights of `lab`, made anew for new ones: drafts, heads, adapters, examples, cards.

    python assets/training/follow.py                      what there is, and whether it was made for the weights that lie there
    python assets/training/follow.py make                 make what is missing, one piece after the other, in this order
    python assets/training/follow.py make eagle hydra     some of it

A piece is made by the command that stands beside it, which writes it into the model's folder. What was made for which weights
is kept in `build/training/followed.json`, piece by piece, so that the same command goes on where it was stopped. Heads begin
with the shipped ones: the states that they read move, and what they learnt of the language stays.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time

from data import BUILD, ROOT
from train import MODELS

DONE = BUILD / "followed.json"
HEADS = "heads.py {name} --from assets/models/lab/heads --text 0.4 --threads {threads} --tokens "
PIECES = {  # name -> the command of assets/training that makes it, and minutes of one thread, about
    "lab-draft": ("train.py lab-draft --teacher assets/models/lab --from assets/models/lab-draft --tokens 3 --cooldown 1 "
                  "--threads {threads}", 40),
    "lab-draft-plain": ("train.py lab-draft-plain --from assets/models/lab-draft-plain --tokens 3 --cooldown 1 "
                        "--threads {threads}", 20),
    "eagle": (HEADS + "1.6", 20), "eagle3": (HEADS + "2.4", 20), "hydra": (HEADS + "2", 15), "medusa": (HEADS + "1.5", 10),
    "blockwise": (HEADS + "1.5", 10), "mlp_speculator": (HEADS + "2", 15), "kangaroo": (HEADS + "1", 10),
    "redrafter": (HEADS + "1", 10),
    "ppd": ("ppd.py --ensemble 4 --steps 900 --lr 0.1 --text 0.4 --threads {threads}", 20),
    "cerberus": ("cerberus.py", 5), "exits": ("exits.py", 15),
    "ntk_attention": ("cacheparts.py ntk_attention --within 12 --threads {threads}", 14),
    "compress_then_prompt": ("cacheparts.py compress_then_prompt --within 12 --threads {threads}", 14),
    "duo_attention": ("cacheparts.py duo_attention --within 10 --threads {threads}", 12),
    "cllm": ("adapters.py cllm --within 30 --threads {threads}", 35),
    "ditto": ("adapters.py ditto --within 14 --threads {threads}", 18),
    "lud": ("adapters.py lud --within 20 --texts 512 --threads {threads}", 25),
    "outline": ("adapters.py outline --within 20 --threads {threads}", 25),
    "skipdecode": ("adapters.py skipdecode --within 20 --threads {threads}", 25),
    "skip_layer": ("skip_layer.py --within 22 --threads {threads}", 25),
    "specdec": ("specdec.py --threads {threads}", 5),  # reads lab-draft too, as the next one does
    "correctness": ("correctness.py --prompts 110 --steps 1500", 5),
    "traces": ("../traces/make.py", 10),
    "card": ("evaluate.py --threads {threads}", 25),
}


def command(name: str, threads: int) -> list[str]:
    """What makes a piece, from the root of the repository."""
    script, *words = shlex.split(PIECES[name][0].format(name=name, threads=threads))
    return [sys.executable, f"assets/training/{script}", *words]


def make(names: list[str], made_for: str, threads: int) -> None:
    """Make the pieces in order, and note each. SystemExit at the first that fails: those behind it may read it."""
    for name in names:
        began = time.time()
        print(f"== {name}: {shlex.join(command(name, threads)[1:])}", flush=True)
        if code := subprocess.run(command(name, threads), cwd=ROOT).returncode:
            raise SystemExit(f"{name} was not made: its command ended with {code}. Mend that, then give the same words again.")
        DONE.write_text(json.dumps(made() | {name: made_for}, indent=2) + "\n")
        print(f"== {name} took {(time.time() - began) / 60:.1f} minutes", flush=True)


def made() -> dict[str, str]:
    """Piece -> the fingerprint of the weights of `lab` that it was last made for."""
    return json.loads(DONE.read_text()) if DONE.exists() else {}


def main() -> None:
    """Say what there is, or make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=("make",), help="make what is missing")
    parser.add_argument("names", nargs="*", metavar="PIECE", help=f"of {', '.join(PIECES)}; all without one")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if strange := [name for name in args.names if name not in PIECES]:
        parser.error(f"there is no piece {strange[0]!r}: choose of {', '.join(PIECES)}")

    from decodescope.engine.load import fingerprint

    made_for, before = fingerprint(MODELS / "lab"), made()
    missing = [name for name in PIECES if (not args.names or name in args.names) and before.get(name) != made_for]
    if args.what:
        make(missing, made_for, args.threads)
        return
    for name, (_, minutes) in PIECES.items():
        state = "to be made" if name in missing else "made"
        print(f"{name:22} {state:11} {minutes:3} min  {shlex.join(command(name, args.threads)[1:])}")


if __name__ == "__main__":
    main()
