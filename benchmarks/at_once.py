"""How often a canvas model shuffles a list rightly when it draws all places at once: exactly, from its laws of the places.

    python benchmarks/at_once.py [--seeds 200]

The questions are those of `decodescope bench parallel` with so many seeds. The script prints a line for each length of list,
with four figures. The first is the share of right draws by its method "all at once (drawn)". The second is the chance by the
distribution of a canvas full of masks: the sum over right answers of the products of its places, the end behind them included.
The third is that of a perfect model of the right answers. The last is that of a model of all orders, the list's own among them,
(n! - 1) / n^n.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from math import prod

import torch

from decodescope.app.commands.shared.output import table
from decodescope.engine.bench.parallel import ParallelBench, default_methods, question_chance
from decodescope.engine.bench.questions.parallel_tasks import ParallelQuestion, chance_at_once, right_answers
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.run import encode_text_or_ids


@torch.inference_mode()
def drawn_at_once(model: Model, question: ParallelQuestion) -> float:
    """The chance that places drawn independently are a right answer.

    Each place is drawn from the model's distribution of it with only masks around it.
    """
    mask, prompt = model.spec.mask_token, encode_text_or_ids(model, question.prompt)
    assert mask is not None and model.tokenizer is not None
    text = [*prompt, *[mask] * (question.slots + 1)]
    logits = model.decoder.forward(Feed.causal_chain(text, 0), None)[0, len(prompt) :].double()
    laws = logits.index_fill(-1, torch.tensor([mask]), -torch.inf).softmax(-1)
    ids = {word: model.tokenizer.encode_plain(" " + word)[0] for word in question.items}
    right = sum(
        prod(float(laws[i, ids[word]]) for i, word in enumerate(answer)) for answer in right_answers(question)
    )
    return right * float(laws[-1, model.stop_tokens].sum())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1, help="of questions and draws, from 0 on")
    model, drawing = load("lab-mdm", "float32", "cpu"), "all at once (drawn)"
    found: dict[int, list[tuple[float, float, float, float]]] = defaultdict(list)
    for seed in range(parser.parse_args().seeds):
        bench = ParallelBench(model, {drawing: default_methods()[drawing]}, seed=seed)
        for question in bench.questions():
            if question.kind == "shuffle":
                x = bench.tasks[str(question.id)]
                right = float(bench.row(question, drawing).right)
                found[x.length].append(
                    (
                        right,
                        drawn_at_once(model, x),
                        question_chance(x),
                        float(chance_at_once(x.task, x.length)),
                    )
                )
    every = [row for rows in found.values() for row in rows]
    lines = [
        [
            str(name),
            str(len(rows)),
            *(f"{100 * statistics.mean(column):.1f} %" for column in zip(*rows, strict=True)),
        ]
        for name, rows in [*sorted(found.items()), ("all", every)]
    ]
    print(
        table(
            ("names", "questions", "drawn", "lab-mdm", "perfect, of right answers", "perfect, of all orders"),
            lines,
        )
    )


if __name__ == "__main__":
    main()
