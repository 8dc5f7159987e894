"""How often a canvas model shuffles a list rightly when it draws all places at once: exactly, from its laws of the places.

    python benchmarks/at_once.py

The questions of `decodescope bench parallel`. A line for each length of list: the chance by the law of a canvas full of masks,
the sum over right answers of the products of its places, the end behind them included; that of a perfect model of the right
answers; and that of one of all orders, the list's own among them, (n! - 1) / n^n.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from math import prod

import torch

from decodescope.app.commands.output import table
from decodescope.engine.bench.parallel import COUNT
from decodescope.engine.bench.parallel_tasks import TASKS, Oracle, Question, answers, at_once, questions
from decodescope.engine.load import Model, load
from decodescope.engine.model.feed import Feed
from decodescope.engine.run import encode


@torch.inference_mode()
def drawn_at_once(model: Model, question: Question) -> float:
    """The chance that places drawn independently, each by the model's law of it beside masks alone, are a right answer."""
    mask, prompt = model.spec.mask_token, encode(model, question.prompt)
    assert mask is not None and model.tokenizer is not None
    text = [*prompt, *[mask] * (question.slots + 1)]
    logits = model.decoder.forward(Feed.causal(text, 0), None)[0, len(prompt) :].double()
    laws = logits.index_fill(-1, torch.tensor([mask]), -torch.inf).softmax(-1)
    ids = {word: model.tokenizer.plain(" " + word)[0] for word in question.items}
    right = sum(prod(float(laws[i, ids[word]]) for i, word in enumerate(answer)) for answer in answers(question))
    return right * float(laws[-1, model.stop_tokens].sum())


def main() -> None:
    """Print the table."""
    model = load("lab-mdm", "float32", "cpu")
    found: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for x in questions(TASKS, COUNT, 0):
        if x.task == "shuffle":
            perfect = float(Oracle(answers(x)).all_at_once(x))
            found[x.length].append((drawn_at_once(model, x), perfect, float(at_once(x.task, x.length))))
    every = [row for rows in found.values() for row in rows]
    lines = [
        [str(name), str(len(rows)), *(f"{100 * statistics.mean(column):.1f} %" for column in zip(*rows, strict=True))]
        for name, rows in [*sorted(found.items()), ("all", every)]
    ]
    print(table(("names", "questions", "lab-mdm", "perfect, of right answers", "perfect, of all orders"), lines))


if __name__ == "__main__":
    main()
