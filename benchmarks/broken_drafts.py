"""Does the draft doctor name what is wrong with a draft? `python benchmarks/broken_drafts.py [--only NAME ...]`

A shipped model is the target. A draft is the target with noise in its weights, broken in one way; heads are the shipped ones,
broken in one way. Six more pairs are healthy but weak. The doctor sees the models alone, never how they were made. A row is
right if the first cause is the one that was made, or, for a healthy pair, if none is called broken. Rules and thresholds of the
doctor were set on `--tuning` with the seeds 1 and 2; the figures are of the other texts, with another seed.

With `--model` the pairs are made from another model, of which less noise is asked: `--model NAME --noise 0.05 --count 2
--answer-tokens 24 --only "logits halved" "last layer"`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from decodescope.engine import Method, Session, load
from decodescope.engine.core.reference import with_weights
from decodescope.engine.core.spec import Rope
from decodescope.engine.draft_doctor.examination import DraftExamination, examine_texts
from decodescope.engine.draft_doctor.texts import DoctorText, write_texts
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import Head, HeadLinear
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace
from decodescope.lab.reports.report import count_report
from decodescope.testing.toys import noisy_decoder

NOISE = 0.3  # of the mean absolute weight
WINDOW = 48  # tokens that a broken draft sees, or positions that it knows
# what the doctor's rules and thresholds were set on
TUNING = (
    "Once upon a time there was a polite girl called Greta. One day she found a small key, and",
    "There once was a patient boy named Sven who lived by the sea with his friend Jana. In the morning",
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    return ",
    "Conrad planted an acorn in a cracked bucket and watered it every evening. After two weeks there was",
    """In a village behind the hill lived a brave fox named Otto. Every summer he carried apples to the market with his sister
Lena. One day the bridge was closed. Otto asked the miller for help, but the miller only laughed. So Otto and Lena""",
    """class Stack:
    \"\"\"A stack of items.\"\"\"

    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError
        return """,
    """The job of Martha is baker. The job of Emil is tailor. The job of Nora is fisher. Martha lives by the lake and Emil lives
in the town. On Sunday Nora met Emil at the well. She was tired, and he was""",
    """def read_lines(path, encoding="utf-8"):
    \"\"\"Read the lines of a file.

    :param path: where the file is
    :param encoding: how it was written
    :return: a list of lines
    \"\"\"
    with open(path, encoding=encoding) as file:
""",
    """Old Frieda was a gardener. Her garden was small and full of roses, and there was a blue gate in the wall. When the winter
came she was worried, because the snow was heavy. A young owl sat on the gate and said""",
    """import os


def find_files(folder, suffix):
    names = []
    for root, folders, files in os.walk(folder):
        for name in files:
            if name.endswith(suffix):
                names.append(os.path.join(root, name))
    return """,
)
# what its figures are of
OTHERS = (
    """A clever otter named Berta wanted to cross the river. It had rained for three days, and the bridge was gone. She asked
the ferryman, but his boat was broken. So Berta""",
    """On Monday Hugo went to the bakery with his brother Paul. Hugo has a green lamp and Paul has a wooden spoon. In the
evening they met Clara at the station. Clara gave Paul""",
    """def count_words(text):
    counts = {}
    for word in text.split():
        if word not in counts:
            counts[word] = 0
        counts[word] += 1
    return counts


def most_common(text, number):
    counts = count_words(text)
    return """,
    """class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        if amount < 0:
            raise ValueError("amount must not be negative")
        self.balance += amount

    def withdraw(self, amount):
        if amount > self.balance:
            raise """,
    """Long ago a shepherd lived with his dog Rolf on a mountain. The winter was long, and there was no bread in the house. One
night somebody knocked at the door. The shepherd""",
    """The miller and the tailor were friends. Every Sunday they sat by the stove and played cards. One day the tailor did not
come. The miller was worried and""",
    """def is_prime(number):
    if number < 2:
        return False
    for divisor in range(2, int(number ** 0.5) + 1):
        if number % divisor == 0:
            return False
    return True


def primes_below(limit):
    return [""",
    """{"name": "Anna", "age": 31, "city": "Bern", "colour": "blue"}
{"name": "Karl", "age": 27, "city": "Graz", "colour": "red"}
{"name": "Mira", "age": 44, "city": "Oslo", "colour": "green"}
{"name": """,
    """import json
from pathlib import Path


def load_settings(path):
    \"\"\"Read the settings from a JSON file.\"\"\"
    with Path(path).open() as file:
        settings = json.load(file)
    if "name" not in settings:
        raise KeyError("name")
    return """,
    """A lonely lighthouse stood on a rock in the sea. Its keeper was old Magnus. He had a cat called Minka and a red boat. When
the storm came in autumn, Magnus""",
    """Emil painted the fence. First he painted it white, then he painted it yellow. His sister Ida laughed at him. "A yellow
fence is silly," she said. Emil""",
    """def merge(first, second):
    result = []
    while first and second:
        if first[0] < second[0]:
            result.append(first.pop(0))
        else:
            result.append(second.pop(0))
    return result + """,
)
FINE = ("healthy", "weak", "weak_template")
MERGED = "Ġwas"  # the token that a draft's tokenizer lacks


# of the target and its noisy copy: the target, and a draft model or the name of its head
Maker = Callable[[Model, Decoder], tuple[Model, Model | str]]


class Case(NamedTuple):
    """A pair. causes: keys of findings that name what was made;  make: makes it

    head: a head that the model must have
    """

    name: str
    causes: tuple[str, ...]
    make: Maker
    head: str = ""


class RereadDecoder(Decoder):
    """A model whose feed or logits are changed on the way; the weights are shared. Through a cache it answers as in one pass.

    stale: it goes on behind everything that it has read through a cache, refused tokens included
    """

    def __init__(
        self,
        other: Decoder,
        reread: Callable[[Callable[[Feed], Tensor], Feed], Tensor],
        stale: bool = False,
    ) -> None:
        self.share(other)
        self._change, self._stale = reread, stale
        self._read: tuple[Any, list[int]] = (None, [])

    def forward(self, feed: Feed, cache: Any = None, *rest: Any, **more: Any) -> Tensor:
        """Logits, by way of the change."""

        def run(other: Feed) -> Tensor:
            return super(RereadDecoder, self).forward(other, None, *rest, **more)

        if cache is None:
            return self._change(run, feed)
        super().forward(feed, cache, *rest, **more)  # its rows are pending
        before = self._read[1] if self._read[0] is cache else []
        before = before if self._stale else before[: int(feed.positions[0, 0])]
        tokens = [*before, *feed.tokens[0].tolist()]
        self._read = cache, tokens
        return self._change(run, Feed.causal_chain(tokens, 0, feed.tokens.device))[:, len(before) :]


def make_noisy(model: Model, noise: float, seed: int) -> Decoder:
    """The target with noise, as plain float32 rows."""
    return noisy_decoder(model.decoder.to(dtype=torch.float32), noise, seed)


def wrap_model(model: Model, decoder: Decoder) -> Model:
    """A decoder with the target's tokenizer."""
    return replace(model, name="draft", spec=decoder.spec, decoder=decoder)


def break_model(change: Callable[[Decoder], Decoder]) -> Maker:
    """A maker: the noisy target, changed."""
    return lambda model, noisy: (model, wrap_model(model, change(noisy)))


def rebuild(draft: Decoder, **parts: Any) -> Decoder:
    """The draft with other parts of `Decoder`'s arguments."""
    names = ("spec", "embed", "layers", "norm", "head")
    return Decoder(**{x: parts.get(x, getattr(draft, x)) for x in names})


def set_rope(draft: Decoder, rope: Rope) -> Decoder:
    """The draft with another rotation."""
    return rebuild(draft, spec=replace(draft.spec, rope=rope))


def break_reading(change: Callable[[Callable[[Feed], Tensor], Feed], Tensor]) -> Maker:
    """A maker: the noisy target, what it reads or writes changed."""
    return break_model(lambda draft: RereadDecoder(draft, change))


def clamp_positions(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
    """Positions stop where the context ends."""
    return run(replace(feed, positions=feed.positions.clamp(max=WINDOW)))


def drop_first(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
    """The first token never arrives."""
    tokens = feed.tokens[0].tolist()
    logits = run(Feed.causal_chain(tokens[1:], 0, feed.tokens.device))
    return torch.cat([logits[:, :1], logits], 1)


def drop_marks(model: Model, noisy: Decoder) -> tuple[Model, Model | str]:
    """The chat marks never arrive."""
    marks = torch.tensor(sorted(tokenizer_of(model).marks))

    def change(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
        tokens = feed.tokens[0]
        kept = ~torch.isin(tokens, marks)
        if not kept.any():
            return run(feed)
        logits = run(Feed.causal_chain(tokens[kept].tolist(), 0, tokens.device))
        return logits[:, (kept.cumsum(0) - 1).clamp(min=0)]

    return break_reading(change)(model, noisy)


def tokenizer_of(model: Model) -> Tokenizer:
    """The model's tokenizer, which it must have."""
    assert model.tokenizer is not None
    return model.tokenizer


def quantise_target(model: Model, noisy: Decoder) -> tuple[Model, Model | str]:
    """The target in 3 bits, and the head that was trained before."""
    return load(str(with_weights(model.reference, "codes bits=3"))), "eagle"


def split_token(model: Model, noisy: Decoder) -> tuple[Model, Model | str]:
    """The tokenizer of the draft lacks one merge: it reads and writes two pieces where the target has one token."""
    folder = Path(tempfile.mkdtemp())
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        if (model.path / name).is_file():
            shutil.copy(model.path / name, folder)
    table = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary, merges = table["model"]["vocab"], table["model"]["merges"]
    pairs = [tuple(x.split(" ")) if isinstance(x, str) else tuple(x) for x in merges]
    at = next(k for k, x in enumerate(pairs) if "".join(x) == MERGED)
    left, right, whole = (vocabulary[x] for x in (*pairs[at], MERGED))
    del merges[at]
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")

    def change(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
        tokens = feed.tokens[0].tolist()
        halves = [y for x in tokens for y in ((left, right) if x == whole else (x,))]
        ends = torch.tensor([2 if x == whole else 1 for x in tokens]).cumsum(0) - 1
        logits = run(Feed.causal_chain(halves, 0, feed.tokens.device))[:, ends].clone()
        logits[..., left] = torch.logaddexp(logits[..., left], logits[..., whole])
        logits[..., whole] = -30.0
        return logits

    draft = wrap_model(model, RereadDecoder(noisy, change))
    return model, replace(draft, tokenizer=Tokenizer.from_folder(folder))


def delay(run: Callable[[Feed], Tensor], feed: Feed) -> Tensor:
    """The distribution of the place before: a cache that lacks the newest token."""
    logits = run(feed)
    return torch.cat([logits[:, :1], logits[:, :-1]], 1)


def overflow_layer(draft: Decoder) -> Decoder:
    """A matrix so large that its products leave the type."""
    last = draft.layers[-1]
    return rebuild(
        draft, layers=[*draft.layers[:-1], replace(last, down=last.down * 1e38, gate_up=last.gate_up * 1e4)]
    )


def break_head(kind: str, change: Callable[[Any], Head]) -> Maker:
    """A maker: the target with its head of that kind, changed."""

    def make(model: Model, noisy: Decoder) -> tuple[Model, Model | str]:
        head = change(model.decoder.heads[kind].copy_to(dtype=torch.float32))
        return replace(model, decoder=model.decoder.with_heads({kind: head})), kind

    return make


def move_d2t(shift: int) -> Maker:
    """A maker: EAGLE-3 with rows of its own for the draft vocabulary, whose ids are moved."""

    def make(model: Model, noisy: Decoder) -> tuple[Model, Model | str]:
        def change(head: Any) -> Head:
            moved = (head.ids + shift) % len(head.mask)
            table = unpack(model.decoder.head)[head.ids][
                moved.argsort()
            ]  # a head keeps its rows in the order of ids
            words = HeadLinear(table.shape[1], table.shape[0], bias=False)
            words.weight = nn.Parameter(table.float(), requires_grad=False)
            head.words, head.shape = nn.ModuleList([words]), {**head.shape, "own": 1}
            head.mask = head.mask.clone()  # a copy of a head shares its tensors
            head.set_draft_vocabulary(moved.tolist())
            return head

        return break_head("eagle3", change)(model, noisy)

    return make


def swap_inputs(head: Any) -> Head:
    """A head of EAGLE-3 whose first matrices have the columns of embedding and state in the other order."""
    tensors = head.tensors()
    for name in ("q", "k", "v"):
        key = f"attention.{name}.weight"
        tensors[key] = tensors[key].roll(tensors[key].shape[1] // 2, 1)
    return head.from_tensors(head.shape, tensors)


def shift_layers(head: Any) -> Head:
    """EAGLE-3 that is given the states one layer further on."""
    head.layer_ids = tuple(min(x + 1, 7) for x in head.places(8))
    return head


def flip_norm(head: Any) -> Head:
    """EAGLE-3 whose attention is added to the normed state, which was trained with the state as it is."""
    head.shape = {**head.shape, "norm_before_residual": 1 - head.shape["norm_before_residual"]}
    return head


def shuffle_head(draft: Decoder) -> Decoder:
    """The output rows in an order of chance: the head of another model."""
    order = torch.randperm(len(draft.head), generator=torch.Generator().manual_seed(0))
    return rebuild(draft, head=draft.head[order])


CASES = (
    Case("logits halved", ("temperature",), break_model(lambda x: rebuild(x, norm=x.norm * 0.5))),
    Case("logits doubled", ("temperature",), break_model(lambda x: rebuild(x, norm=x.norm * 2))),
    Case(
        "rope base wrong", ("rope_base",), break_model(lambda x: set_rope(x, replace(x.spec.rope, theta=1e6)))
    ),
    Case(
        "rope scaling wrong",
        ("rope_scaling",),
        break_model(lambda x: set_rope(x, replace(x.spec.rope, kind="linear", factor=4.0))),
    ),
    Case("output ids off by one", ("output_ids",), break_model(lambda x: rebuild(x, head=x.head.roll(1, 0)))),
    Case(
        "embedding and head off by one",
        ("all_ids",),
        break_model(lambda x: rebuild(x, embed=x.embed.roll(1, 0), head=x.head.roll(1, 0))),
    ),
    Case("d2t off by one", ("output_ids", "draft_vocabulary"), move_d2t(1), "eagle3"),
    Case(
        "last layer dropped",
        ("missing_layers",),
        break_model(
            lambda x: rebuild(x, layers=x.layers[:-1], spec=replace(x.spec, n_layers=len(x.layers) - 1))
        ),
    ),
    Case(
        "a window",
        ("window",),
        break_model(lambda x: rebuild(x, spec=replace(x.spec, windows=(WINDOW,) * x.spec.n_layers))),
    ),
    Case("a short context", ("context",), break_reading(clamp_positions)),
    Case("d2t off by a block", ("output_ids", "draft_vocabulary"), move_d2t(64), "eagle3"),
    Case("[embedding; state] swapped", ("inputs",), break_head("eagle3", swap_inputs), "eagle3"),
    Case("states of layer i + 1", ("layers",), break_head("eagle3", shift_layers), "eagle3"),
    Case("another norm", ("norms",), break_head("eagle3", flip_norm), "eagle3"),
    Case("first token missing", ("first_token",), break_reading(drop_first)),
    Case("template missing", ("template",), drop_marks),
    Case("overflow", ("not_finite",), break_model(overflow_layer)),
    Case(
        "a stale cache",
        ("stale_cache",),
        break_model(lambda x: RereadDecoder(x, lambda run, feed: run(feed), stale=True)),
    ),
    Case("target quantised later", ("other_target",), quantise_target, "eagle"),
    Case("one merged token apart", ("tokenizer",), split_token),
    Case("healthy: noise of 30 %", FINE, break_model(lambda x: x)),
    Case(
        "healthy: noise of 100 %",
        FINE,
        lambda model, noisy: (model, wrap_model(model, make_noisy(model, 1.0, 1))),
    ),
    Case("healthy: lab-draft", FINE, lambda model, noisy: (model, load("lab-draft"))),
    Case("healthy: lab-draft-plain", FINE, lambda model, noisy: (model, load("lab-draft-plain"))),
    Case("healthy: EAGLE", FINE, break_head("eagle", lambda head: head), "eagle"),
    Case("healthy: Medusa", FINE, break_head("medusa", lambda head: head), "medusa"),
    Case(
        "further: yarn scaling wrong",
        ("rope_scaling",),
        break_model(
            lambda x: set_rope(
                x, replace(x.spec.rope, kind="yarn", factor=8.0, original_positions=256, amplitude=1.2)
            )
        ),
    ),
    Case(
        "further: embedding off by one",
        ("input_ids",),
        break_model(lambda x: rebuild(x, embed=x.embed.roll(1, 0))),
    ),
    Case("further: one place behind", ("place_shift",), break_reading(delay)),
    Case("further: head of another model", ("wiring",), break_model(shuffle_head)),
)


def make_row(case: Case, seen: DraftExamination) -> dict[str, Any]:
    """What the table says of a pair."""
    first = seen.findings[0]
    return {
        "pair": case.name,
        "overlap": seen.figures["overlap"],
        "first": first.cause,
        "certainty": first.certainty,
        "right": first.cause in case.causes,
        "evidence": first.evidence,
        "others": [x.cause for x in seen.findings[1:]],
        "best": [
            (x.cause, x.how, round(x.before, 3), round(x.after, 3), x.error) for x in seen.experiments[:3]
        ],
    }


def decode_traces(
    model: Model, draft: Model | str, texts: Sequence[DoctorText], tokens: int
) -> Iterator[Trace]:
    """The recording of each text's prompt decoded with the pair, greedily, at level "decisions"."""
    drafter = "draft_model" if isinstance(draft, Model) else draft
    method = Method.from_names({"drafter": drafter})
    models = {"draft": draft} if isinstance(draft, Model) else {}
    for text in texts:
        session = Session(model, method, text.ids[: text.start], models=models, max_new_tokens=tokens, seed=0)
        session.start()
        yield Trace([session.header, session.prefilled, *session.stream()])


def make_trace_row(case: Case, traces: Iterator[Trace]) -> dict[str, Any]:
    """What recordings of a pair say without the models; a pair whose draft cannot run gives the refusal."""
    try:
        seen = count_report(traces)
    except (EngineFault, ValueError) as error:
        cause = "not_finite" if "finite" in str(error) or "NaN" in str(error) else ""
        return {
            "pair": case.name,
            "first": cause,
            "certainty": 0.0,
            "kept": 0.0,
            "evidence": str(error),
            "right": cause in case.causes,
        }
    tried = sum(x.tested for x in seen.depths)
    first = seen.findings[0] if seen.findings else None
    return {
        "pair": case.name,
        "first": "" if first is None else first.cause,
        "certainty": 0.0 if first is None else first.certainty,
        "kept": sum(x.accepted for x in seen.depths) / max(1, tried),
        "evidence": " ".join(seen.lacking) if first is None else first.evidence,
        "right": first is not None and first.cause in case.causes,
    }


def read_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="lab")
    parser.add_argument("--only", nargs="*", help="words of the names of the pairs to make (default: all)")
    parser.add_argument("--answer-tokens", type=int, default=96)
    parser.add_argument("--count", type=int, default=100, help="of the texts, the first ones")
    parser.add_argument(
        "--noise", type=float, default=NOISE, help="of the mean absolute weight; a larger model bears less"
    )
    parser.add_argument("--tuning", action="store_true", help="the texts that the rules were set on")
    parser.add_argument("--seed", type=int, default=3, help="of the noise")
    parser.add_argument("--traces", action="store_true", help="what recordings alone say, without the models")
    parser.add_argument("--json", metavar="OUT", help="append a line for each pair to this file")
    parser.add_argument(
        "--records", metavar="FOLDER", help="write what the doctor measured of each pair, as JSON"
    )
    return parser.parse_args()


def choose_cases(args: argparse.Namespace, model: Model) -> Iterator[Case]:
    """The pairs that are asked for and that the model can make."""
    for case in CASES:
        asked = not args.only or any(x in case.name for x in args.only)
        headless = case.head and case.head not in model.decoder.heads
        other = "lab-draft" in case.name and args.model != "lab"
        if asked and not headless and not other:
            yield case._replace(name=case.name.replace(f"{NOISE:.0%}"[:-1], f"{args.noise:.0%}"[:-1]))


def main() -> None:
    """Print a row for each pair that the model can make, then how many are right."""
    args = read_arguments()
    model = load(args.model)
    texts = write_texts(model, (TUNING if args.tuning else OTHERS)[: args.count], args.answer_tokens, 512)
    print(
        f"{len(texts)} texts of {min(len(x.ids) for x in texts)} to {max(len(x.ids) for x in texts)} tokens\n"
    )
    noisy = make_noisy(model, args.noise, args.seed)
    print(f"| pair | {'kept' if args.traces else 'overlap'} | first cause | certainty | right | evidence |")
    print("|---|---|---|---|---|---|")
    rows = []
    for case in choose_cases(args, model):
        began = time.process_time()
        pair = case.make(model, noisy)
        if args.traces:
            one = make_trace_row(case, decode_traces(*pair, texts, args.answer_tokens))
        else:
            seen = examine_texts(*pair, texts)
            one = make_row(case, seen)
            if args.records:
                folder = Path(args.records)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{case.name}.json").write_text(json.dumps(seen.record()), encoding="utf-8")
        rows.append({**one, "seconds": time.process_time() - began})
        print(
            f"| {case.name} | {one['kept' if args.traces else 'overlap']:.0%} | {one['first']} | {one['certainty']:.2f} | "
            f"{'yes' if one['right'] else 'no'} | {one['evidence']} |",
            flush=True,
        )
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(f"\n{sum(x['right'] for x in rows)} of {len(rows)} are right.")


if __name__ == "__main__":
    main()
