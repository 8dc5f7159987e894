"""Token recycling beside the original: whole texts from a cold table, the same tree, their loop over our passes.

    python benchmarks/fidelity/token_recycling.py CHECKOUT        # of Luowaterbi/TokenRecycling
    python benchmarks/fidelity/token_recycling.py CHECKOUT --time --dtype bfloat16

Their `recycling_forward` runs as it stands, with our decoder and cache in the place of theirs. Ours drafts along the tree that
theirs is given: their 80 nodes, or our best tree of 24. What differs is what each does with a token that was never read
(`unread`), and which row is kept of a token that one pass read at several places: ours the accepted one, theirs the last.
--time measures the processor's milliseconds a token instead, of our own drafter as it comes: every setting in turn for each
prompt, after a warm-up.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from official import Code, Texts, main, outcomes, parser, told
from torch import Tensor

from decodescope.app.commands.shared.output import table
from decodescope.engine import Method, Session
from decodescope.engine.decoding.bases.drafter import DraftOutcome
from decodescope.engine.decoding.values.draft import ROOT
from decodescope.engine.methods.drafters.lookup.token_recycling import RATES, SIZES
from decodescope.engine.methods.drafters.shared.trees import Template, best_tree
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache

EIGHT = 8  # successors of a token
Path = list[int]  # the ranks from the root down


class OnCpu:
    """torch, where the device is always the processor."""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: torch.device("cpu")) if name == "device" else getattr(torch, name)


@dataclass
class Theirs:
    """A model as their loop calls it: a pass over a prompt or a tree, and the entries that it moves accepted rows within."""

    decoder: Decoder
    cache: KVCache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = KVCache(self.decoder.spec, dtype=self.decoder.dtype)

    def __call__(
        self,
        input_ids: Tensor,
        past_key_values: Any,
        attention_mask: Tensor | None = None,
        position_ids: Any = None,
    ) -> Any:
        if attention_mask is None:  # the prompt
            self.decoder.forward(Feed.causal_chain(input_ids[0].tolist(), 0), self.cache)
            self.cache.commit(range(input_ids.shape[1]))
            return None
        visible = attention_mask[0, :, :, -input_ids.shape[1] :].bool()
        return SimpleNamespace(
            logits=self.decoder.forward(Feed(input_ids, position_ids, visible), self.cache)
        )

    def __getitem__(self, at: Any) -> Any:
        """Of the entries: the rows that are to be kept [R, 1], or the place that they go to."""
        return self if isinstance(at[1], slice) else at[1][:, None] - self.cache.length

    def copy_(self, rows: Tensor, non_blocking: bool = True) -> None:
        """Keep these rows of the last pass."""
        self.cache.commit(rows[:, 0].tolist())


def of_theirs(
    code: Code, model: Theirs, prompt: list[int], tree: list[Path], new: int
) -> tuple[list[int], list[int]]:
    """Their text, and the tokens of each of their steps."""
    (loop,) = code.take(
        "recycling_forward",
        torch=OnCpu(),
        adj_matrix=torch.zeros(model.decoder.vocab, EIGHT, dtype=torch.long),
        choose_tree_template=lambda version: tree,
        initialize_past_key_values=lambda _: (None, model, torch.zeros(1)),
    )
    inputs = SimpleNamespace(input_ids=torch.tensor([prompt]))
    with patch.object(torch.Tensor, "cuda", lambda x: x):
        read, _, _, steps = loop(inputs, model, SimpleNamespace(eos_token_id=-1), new)
    return read[0, len(prompt) :].tolist(), steps


def in_order(session: Session, outcome: DraftOutcome) -> None:
    """What the table holds after a pass if every row is written in its turn, as theirs does."""
    best = outcome.logits.topk(EIGHT, -1).indices.tolist()
    session.drafter._table.update(zip([outcome.root, *outcome.draft.tokens], best, strict=True))


def of_ours(session: Session, tree: list[Path], by_row: bool) -> tuple[list[int], list[int]]:
    """The same of ours."""
    nodes = {tuple(path): i for i, path in enumerate(tree)}
    parents = tuple(nodes.get(tuple(path[:-1]), ROOT) for path in tree)
    session.drafter._template = Template(parents, tuple(path[-1] for path in tree), 0.0)
    steps = []
    for outcome in outcomes(session):
        steps.append(len(outcome.verdict.path) + 1)
        if by_row:
            in_order(session, outcome)
    return session.tokens[session.prompt :], steps


def until(steps: list[int], new: int) -> int:
    """How many steps write `new` tokens."""
    for count, written in enumerate((sum(steps[: i + 1]) for i in range(len(steps))), 1):
        if written >= new:
            return count
    raise ValueError(f"{sum(steps)} tokens were written, not {new}")


def ranks(tree: Template) -> list[Path]:
    """The nodes of a template as ranks from the root, level by level, as theirs are listed."""
    made: list[Path] = []
    for parent, rank in zip(tree.parents, tree.ranks, strict=True):
        made.append([*(made[parent] if parent != ROOT else []), rank])
    return sorted(made, key=lambda path: (len(path), path))


@torch.inference_mode()
def compare(args: argparse.Namespace) -> None:
    """Decode with both, and print."""
    code = Code(args.checkout, "evaluation/inference_recycling.py")
    (template,) = Code(args.checkout, "model/recycling/tree_template_.py").take("choose_tree_template")
    texts = Texts(args)
    rows = []
    new = args.new_tokens
    if args.time:
        return timed(texts, args.rounds)
    for size, tree in (("24, ours", ranks(best_tree(RATES, 24))), ("80, theirs", template("2.2.2"))):
        due = [of_theirs(code, Theirs(texts.model.decoder), prompt, tree, new) for prompt in texts.prompts]
        count = sum(until(steps, new) for _, steps in due)
        rows.append([size, "theirs", count, f"{new * len(due) / count:.3f}", "", ""])
        texts.new = new + max(map(len, tree)) + 1  # no draft that counts is cut by the end of the text
        for unread, by_row in (("zero", True), ("zero", False), ("stop", False)):
            knobs = {"drafter": {"nodes": "8", "table_from_prompt": False, "unseen_token": unread}}
            sessions = texts.sessions(Method.from_names({"drafter": "token_recycling"}, knobs))
            found = [of_ours(session, tree, by_row) for session in sessions]
            count = sum(until(steps, new) for _, steps in found)
            equal = sum(
                a[: until(b, new)] == b[: until(b, new)] for (_, a), (_, b) in zip(found, due, strict=True)
            )
            same = sum(a[:new] == b[:new] for (a, _), (b, _) in zip(found, due, strict=True))
            name = f"ours, {unread}, {'last' if by_row else 'accepted'} row kept"
            rows.append(
                [
                    size,
                    name,
                    count,
                    f"{new * len(due) / count:.3f}",
                    f"{same} of {len(due)}",
                    f"{equal} of {len(due)}",
                ]
            )
    told(code, ("nodes", "", "steps", "tokens a step", "same text", "same steps"), rows)


def timed(texts: Texts, rounds: int) -> None:
    """Print what a token costs the processor, the prompt not counted: all settings in turn, for each prompt."""
    methods = {
        (nodes, unread): Method.from_names(
            {"drafter": "token_recycling"}, {"drafter": {"nodes": str(nodes), "unseen_token": unread}}
        )
        for nodes in SIZES
        for unread in ("stop", "zero")
    }
    spent: dict[tuple[int, str], list[float]] = {name: [] for name in methods}
    steps, tokens = dict.fromkeys(methods, 0), dict.fromkeys(methods, 0)
    for turn in range(rounds + 1):
        for i in range(len(texts.prompts)):
            for name in [*methods][(turn + i) % len(methods) :] + [*methods][: (turn + i) % len(methods)]:
                session = texts.session(methods[name], i)
                began = time.thread_time()
                made = sum(1 for _ in session.stream())
                if turn:  # the first is to warm up
                    spent[name].append((time.thread_time() - began) / texts.new)
                    steps[name], tokens[name] = steps[name] + made, tokens[name] + texts.new
    rows = []
    for nodes in SIZES:
        for unread in ("stop", "zero"):
            name = (nodes, unread)
            pairs = [a / b for a, b in zip(spent[nodes, "stop"], spent[name], strict=True)]
            cells = [
                f"{tokens[name] / steps[name]:.3f}",
                f"{1e3 * median(spent[name]):.2f}",
                f"{median(pairs):.2f}",
            ]
            rows.append([str(nodes), unread, *cells])
    print(table(("nodes", "unread", "tokens a step", "ms a token", "times stop"), rows))


if __name__ == "__main__":
    arguments = parser(__doc__, new_tokens=150)
    arguments.add_argument("--time", action="store_true", help="measure time instead, of ours alone")
    arguments.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="of the measurement (default: 3)"
    )
    sys.exit(main(compare, arguments))
