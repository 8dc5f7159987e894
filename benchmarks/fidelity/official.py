"""The authors' code, out of a checkout of it, and what all comparisons share: prompts, watched runs, the table.

Nothing of theirs is here: a function is compiled from the file in the checkout, alone, with the names that it refers to given.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.app.basis.refusal import sentence
from decodescope.app.commands.shared.output import table
from decodescope.engine import Method, Session, load
from decodescope.engine.bench.labbench import QUESTIONS, Bench
from decodescope.engine.bench.questions.questions import read_questions, spread_over_kinds
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.decoding.bases.drafter import DraftOutcome
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.session.load import Model


class Code:
    """A file of a checkout: the first of `places` that it has. Raises Refusal if it has none."""

    def __init__(self, checkout: Path, *places: str):
        found = [place for place in places if (checkout / place).is_file()]
        if not found:
            raise Refusal(
                f"{checkout} holds no {' and no '.join(places)}: give the folder of a checkout of the official code."
            )
        self.place, data = found[0], (checkout / found[0]).read_bytes()
        self._tree = ast.parse(data)
        self.blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # what `git ls-tree` calls it

    def take(self, *names: str, **given: Any) -> list[Any]:
        """The functions and classes `names` ("f", or "Class.f") as the source has them; `given`: what they refer to."""
        flags, made = __future__.annotations.compiler_flag, dict(given)
        for name in names:
            node = self._find(name.split("."), self._tree)
            module = ast.Module([node], [])
            exec(compile(module, self.place, "exec", flags, dont_inherit=True), made)
        return [made[name.rpartition(".")[2]] for name in names]

    def _find(self, path: Sequence[str], within: Any) -> Any:
        for node in within.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == path[0]:
                return node if len(path) == 1 else self._find(path[1:], node)
        raise Refusal(f"{self.place} has no {path[0]}: the comparison was written for another version of it.")


class Texts:
    """The shipped model, or another, and prompts: the first turns of LabBench's questions, one of each kind."""

    def __init__(self, args: argparse.Namespace, draft: str | None = None):
        torch.set_num_threads(1)
        self.model: Model = load(args.model, args.dtype)
        self.others = {} if draft is None else {"draft": load(draft, args.dtype)}
        self.new, self.seed = args.new_tokens, args.seed
        bench = Bench(self.model, {})
        self.prompts = [bench.first_prompt(x) for x in spread_over_kinds(read_questions(QUESTIONS)[0], 1)][
            : args.texts
        ]

    def session(self, method: Method, i: int, begun: bool = True) -> Session:
        """A session of the i-th prompt. Nothing stops a text but its length."""
        made = dict(
            models=self.others, max_new_tokens=self.new, seed=self.seed + i, stop_tokens=(), level="summary"
        )
        session = Session(self.model, method, self.prompts[i], **made)  # type: ignore[arg-type]  # each by its name
        if begun:
            session.start()
        return session

    def sessions(self, method: Method) -> Iterator[Session]:
        """One for each prompt, begun."""
        return (self.session(method, i) for i in range(len(self.prompts)))


def watched(session: Session) -> list[DraftOutcome]:
    """What becomes of every draft from now on."""
    seen: list[DraftOutcome] = []
    observe = session.drafter.observe
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    return seen


@torch.inference_mode()
def outcomes(session: Session) -> Iterator[DraftOutcome]:
    """The same, step by step until the text ends; the last, which the end may have cut, is left out."""
    seen = watched(session)
    while not session.is_done:
        session.step()
        if not session.is_done and seen:
            yield seen.pop()


def paths(draft: Draft) -> list[list[int]]:
    """The nodes on the way to each leaf, in the order of the leaves."""
    inner = set(draft.parents)
    made = []
    for leaf in (node for node in range(len(draft)) if node not in inner):
        path = [leaf]
        while draft.parents[path[0]] != ROOT:
            path.insert(0, draft.parents[path[0]])
        made.append(path)
    return made


def candidates(draft: Draft, root: int, pad: int) -> tuple[Tensor, Tensor, list[int]]:
    """A draft as the heads' authors write it: rows int64 [leaves, depth + 1] of the pass along each path, -1 behind its end;
    the tokens there, `pad` behind the end; and the length of each path."""
    ways = sorted(paths(draft))
    depth = max(map(len, ways))
    rows = torch.tensor([[0, *(node + 1 for node in way), *[-1] * (depth - len(way))] for way in ways])
    tokens = torch.tensor([root, *draft.tokens, pad])
    return rows, tokens[rows], [len(way) for way in ways]


def parser(about: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """The arguments of a comparison; `defaults` change some."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "checkout", type=Path, metavar="CHECKOUT", help="folder of a checkout of the official code"
    )
    made.add_argument("--model", default="lab")
    made.add_argument("--dtype", default="float32")
    made.add_argument(
        "--texts",
        type=int,
        default=12,
        metavar="N",
        help="prompts, one of each kind of LabBench (default: 12)",
    )
    made.add_argument(
        "--new-tokens", type=int, default=100, metavar="N", help="length of a text (default: 100)"
    )
    made.add_argument("--seed", type=int, default=0)
    made.set_defaults(**defaults)
    return made


def told(code: Code, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the table of a comparison, under what it was made with."""
    print(f"{code.place}, blob {code.blob[:12]}\n")
    print(table(tuple(head), [[str(cell) for cell in row] for row in rows]))


def main(compare: Callable[[argparse.Namespace], None], arguments: argparse.ArgumentParser) -> int:
    """Run a comparison; what it cannot do is said in one sentence."""
    args = arguments.parse_args()
    try:
        compare(args)
    except Refusal as error:
        print(sentence(error), file=sys.stderr)
        return 2
    return 0
