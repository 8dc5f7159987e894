"""What decoding keeps of its speed beside programs that use the same processors.

    python benchmarks/busy.py [--dtype bfloat16] [--busy 0 1 2] [--seconds 1.5] [--arms before after]

It measures tokens a second of `lab` (`lab-draft`) by autoregressive decoding, prompt lookup and a draft model, undisturbed and
next to one and two processes that do nothing but compute. The script starts and ends these. An arm is a fresh process, since
how threads wait for each other is set before torch is loaded. "before" has as many threads as processors, "after" is what the
command line does, N:SPINS has N threads (auto: by timing) that look SPINS times before they sleep (2:0; the default is 300000).
A run's clock goes from the end of its prompt to its end, timings of threads in between included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

METHODS = {
    "autoregressive": {},
    "prompt_lookup": {"drafter": "prompt_lookup"},
    "draft_model": {"drafter": "draft_model"},
}
BARS = {1: 0.70, 2: 0.45}  # busy processes -> the share of the undisturbed speed that is to be left
BUSY = "while True: pass"
PROMPT = '''class Account:
    """An account with an owner and a balance."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        """Add an amount to the balance."""
        self.balance = self.balance + amount
        return self.balance

    def withdraw(self, amount):
        """Take an amount from the balance."""
        self.balance = self.balance - amount
        return self.balance


class Savings:
    """An account with an owner and a balance."""

    def __init__(self, owner, balance=0):
'''


def child(arm: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: tokens a second of each method, and the threads in the end."""
    from decodescope.engine.decoding.shared.thread_count import ThreadCount
    from decodescope.engine.session.load import load
    from decodescope.engine.session.run import encode_text_or_ids
    from decodescope.engine.session.session import Session

    model, draft = load("lab", arm["dtype"], "cpu"), load("lab-draft", arm["dtype"], "cpu")
    threads = ThreadCount(arm["threads"])
    threads.choose(model.decoder)
    prompt, speeds = encode_text_or_ids(model, PROMPT), {}
    for name, method in METHODS.items():
        tokens = 0
        spent = 0.0
        runs = 0
        while spent < arm["seconds"]:
            models = {"draft": draft} if name == "draft_model" else {}
            session = Session(
                model, method, prompt, models=models, max_new_tokens=96, stop_tokens=[], level="summary"
            )
            session.threads = threads
            session.start()
            began, before = time.perf_counter(), len(session.tokens)
            while session.end is None and spent + time.perf_counter() - began < 4 * arm["seconds"]:
                session.step()
            if runs:  # the first one warms up
                tokens += len(session.tokens) - before
                spent += time.perf_counter() - began
            runs += 1
        speeds[name] = tokens / spent
    return {"speeds": speeds, "threads": threads.number}


def measured(arm: dict[str, Any], busy: int) -> dict[str, Any]:
    """The child's results, next to so many busy processes."""
    environ = {
        k: v
        for k, v in os.environ.items()
        if k not in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    if arm["spins"]:
        environ["GOMP_SPINCOUNT"] = arm["spins"]
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        words = [sys.executable, __file__, "--child", json.dumps(arm)]
        done = subprocess.run(words, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    finally:
        for other in others:
            other.kill()
            other.wait()
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def arm_of(name: str) -> dict[str, Any]:
    """Threads (None: by timing) and spins ("": as usual) of an arm."""
    if name in ("before", "after"):
        return {"threads": os.cpu_count() if name == "before" else None, "spins": ""}
    threads, _, spins = name.partition(":")
    return {"threads": None if threads == "auto" else int(threads), "spins": spins}


def main() -> None:
    """Print a row for each arm, method and number of busy processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="busy processes beside it")
    parser.add_argument("--seconds", type=float, default=1.5, help="of decoding by a method, about")
    parser.add_argument("--arms", nargs="+", default=["before", "after"])
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(json.loads(args.child))))
        return
    from decodescope.app.commands.shared.output import table

    seen = {}
    for busy in args.busy:
        for name in args.arms:
            seen[name, busy] = measured({**arm_of(name), "dtype": args.dtype, "seconds": args.seconds}, busy)
    rows = []
    for name in args.arms:
        for method in METHODS:
            speeds = [seen[name, busy]["speeds"][method] for busy in args.busy]
            kept = ["" if not i else f" ({100 * x / speeds[0]:.0f} %)" for i, x in enumerate(speeds)]
            rows.append([name, method, *(f"{x:.0f}{share}" for x, share in zip(speeds, kept, strict=True))])
        rows.append([name, "threads in the end", *(str(seen[name, busy]["threads"]) for busy in args.busy)])
    print(table(("arm", "tokens/s", *(f"{busy} busy" for busy in args.busy)), rows))
    print(f"lab, {args.dtype}; bar: {', '.join(f'{100 * x:.0f} % beside {n}' for n, x in BARS.items())}")


if __name__ == "__main__":
    main()
