"""Train one of the shipped models, from nothing or further, on a processor or a CUDA device.

    python -m decodescope.training.train lab --from assets/models/lab      at a constant rate, until it is stopped
    python -m decodescope.training.train lab --cooldown 2                  from its checkpoint: 2 M tokens at a falling rate
    python -m decodescope.training.train lab --from assets/models/lab --within 9     both, in nine minutes
    python -m decodescope.training.train lab-draft --teacher assets/models/lab --tokens 4 --cooldown 2
    python -m decodescope.training.train lab-draft --teacher assets/models/lab --target-text 0.5 --within 9
                                                                           on what `lab` wrote
    python -m decodescope.training.train lab-recall --batch 2048           on lookups that are made while it reads

The rate rises, stays, and falls straight to nothing. The constant part can be as long as one likes: it stops at `--tokens`,
at `--minutes` or by a signal (SIGTERM), keeps its state in `build/training/<name>.pt` and goes on from it when the same
command is given again. A cooldown begins from that state and leaves it as it is, in `<name>-cooldown.pt`, so the constant
part can go on afterwards. Its end writes the model folder. A state that is lost is replaced by `--from FOLDER`: weights in
bfloat16, fresh optimizers, a short rise of the rate.

On a processor that does nothing else, threads that spin while they wait, memory that is kept and `--compile` make it
faster: `records/recipe.md` has the words and by how much.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from . import data
from .data import BUILD, ROOT
from .losses import (
    Objective,
    draw_layer_mask,
    dropout_rates,
    loss_of,
    own_text,
    target_text,
    teacher_of,
    token_loss,
)
from .mixtures import MIXTURE, held_out_by_name, mixture_of, texts_of, windows_of
from .net import Net, NetShape, adamw_weights, count_weights, muon_weights

MODELS = ROOT / "assets" / "models"
RECORDS = ROOT / "training" / "records"  # how the shipped models were made; the model card is written from it
DRAFT = NetShape(layers=2, width=128, heads=4, kv_heads=2, head_width=32, inner=384)
SHAPES = {
    "lab": NetShape(layers=8, width=384, heads=6, kv_heads=2, head_width=64, inner=768),
    "lab-draft": DRAFT,
    "lab-draft-plain": DRAFT,
    "lab-recall": NetShape(layers=6, width=128, heads=4, kv_heads=4, head_width=32, inner=256),
}
RATES = {
    "lab": (0.0015, 0.001),
    "lab-draft": (0.006, 0.008),
    "lab-draft-plain": (0.006, 0.008),
    "lab-recall": (0.006, 0.008),
}  # Muon's, AdamW's
OBJECTIVES = {
    "lab": Objective(answers=3.0, exits=0.2, dropout=0.1),
    "lab-draft": Objective(distil=0.9, on_policy=0.25),
    "lab-draft-plain": Objective(),
    "lab-recall": Objective(answers=6.0, questions=0.0),
}


@dataclass(frozen=True)
class TrainingPlan:
    """The training settings of a kind of machine: tokens a step, and how often it takes which window, steady and cooling.

    Attention is cheap on short windows, and most tasks fit them; the cooldown teaches the long ones. A GPU has one length a
    phase, since each is compiled once.
    """

    batch: int
    steady: dict[int, float]
    cooling: dict[int, float]
    warmup: int = 20  # steps after fresh optimizers
    check: float = 0.5  # million tokens between two looks at the held-out text
    prompt: float = 0.25  # part of a window after which a draft goes on by itself; writing is slow compared with a GPU's steps
    course: tuple[
        tuple[float, dict[int, float]], ...
    ] = ()  # before `steady`: up to so many million tokens, which windows

    def lengths(self) -> list[int]:
        """Every window that it ever takes."""
        return sorted({*self.steady, *self.cooling, *(length for _, some in self.course for length in some)})

    def windows(self, step: int, cooling: bool) -> dict[int, float]:
        """How often a step takes which window."""
        if cooling:
            return self.cooling
        return next((some for end, some in self.course if step * self.batch < end * 1e6), self.steady)


PLANS = {
    "cpu": TrainingPlan(
        4096,
        {128: 0.35, 256: 0.30, 512: 0.22, 1024: 0.10, 2048: 0.03},
        {256: 0.10, 512: 0.30, 1024: 0.35, 2048: 0.25},
    ),
    "cuda": TrainingPlan(131_072, {1024: 1.0}, {2048: 1.0}, warmup=40, check=100.0, prompt=0.875),
}
# what differs from the machine's plan: looking up appears soon where windows are short and dense with it, and hardly elsewhere
COURSES: dict[str, dict[str, Any]] = {
    "lab": {},
    "lab-draft": {},
    "lab-draft-plain": {},
    "lab-recall": {
        "cooling": {256: 0.15, 512: 0.30, 1024: 0.30, 2048: 0.25},
        "course": ((3.0, {128: 1.0}), (5.0, {128: 0.4, 256: 0.6}), (8.0, {256: 0.3, 512: 0.5, 1024: 0.2})),
    },
}
STEADY_SHARE = 0.55  # of the minutes of `--within`
SAVE = 180  # seconds between two checkpoints


def rate(warm: int, warmup: int, left: float) -> float:
    """The factor on the learning rates: rises over `warmup` steps, then is `left`, the share of a cooldown still to come."""
    return min(1.0, (warm + 1) / warmup) * max(0.0, left)


def optimizers(net: nn.Module, lr: float, embed_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for embedding and norms."""
    return [
        torch.optim.Muon(
            muon_weights(net), lr=lr, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(adamw_weights(net), lr=embed_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


N = TypeVar("N", bound=nn.Module)


class Trainer(Generic[N]):
    """A training that can stop and go on: net, optimizers, place in the text, its cost and its results so far.

    Subclasses define what is trained on which text: `batch`, `loss` and `measure`.
    """

    PLAIN = (
        "step",
        "warm",
        "tokens",
        "cooldown",
        "cooled",
        "minutes",
        "history",
        "place",
        "origin",
        "source",
    )
    FIGURES: tuple[str, ...] = ("loss",)  # what the figures of `loss` are called

    def __init__(self, net: N, plan: TrainingPlan, rates: tuple[float, float], seed: int = 0) -> None:
        self.net = net
        self.plan = plan
        self.rates = rates
        self.seed = seed
        self.device = next(net.parameters()).device
        self.optimizers = optimizers(net, *rates)
        self.place: Any = None
        self.chance = torch.Generator().manual_seed(seed)
        self.step = self.warm = self.tokens = 0
        self.cooldown = self.cooled = 0  # tokens; a steady training has no cooldown
        self.long = 1.0  # of a cooldown, its end that is spent in its own windows
        self.minutes, self.history = 0.0, []
        self.origin = uuid.uuid4().hex  # identifies this training
        self.source = None  # the folder it began with
        self.worker, self.coming = ThreadPoolExecutor(1), None

    def batch(self, step: int, cooling: bool) -> tuple[Any, object]:
        """The rows of a step, and the place in the text after them."""
        raise NotImplementedError

    def loss(self, rows: Any) -> tuple[Tensor, Tensor, int]:
        """The loss of a batch on the device, float [n] its `FIGURES`, and how many tokens it took."""
        raise NotImplementedError

    def measure(self, check: dict) -> dict[str, float]:
        """Measurements that are taken now and then, by name."""
        raise NotImplementedError

    def describe(self) -> dict:
        """What the record says of the objective and of the text."""
        raise NotImplementedError

    def state(self) -> dict:
        """All that is needed to go on."""
        return {
            "net": self.net.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "chance": self.chance.get_state(),
            **{k: getattr(self, k) for k in self.PLAIN},
        }

    def load_state(self, state: dict) -> None:
        """Go on from `state`."""
        self.net.load_state_dict(state["net"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for key in self.PLAIN:
            setattr(self, key, state[key])
        self.chance.set_state(state["chance"].cpu())

    def next_rows(self, cooling: bool) -> Any:
        """The rows of this step; those of the next are mixed while it computes."""
        rows, place = (self.coming or self.worker.submit(self.batch, self.step, cooling)).result()
        self.place = place
        self.coming = self.worker.submit(self.batch, self.step + 1, cooling)
        return rows.to(self.device)

    def update(self, left: float = 1.0, cooling: bool = False) -> tuple[Tensor, int]:
        """One step at the share `left` of the full rate; float [n] its `FIGURES`, and the tokens it took."""
        loss, figures, size = self.loss(self.next_rows(cooling))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        for optimizer, base in zip(self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = base * rate(self.warm, self.plan.warmup, left)
            optimizer.step()
            optimizer.zero_grad()
        self.step, self.warm = self.step + 1, self.warm + 1
        self.tokens += size
        self.cooled += size if self.cooldown else 0
        return figures, size

    def cooldown_left(self) -> float:
        """The share of the cooldown that is still to come; 1 without one."""
        return 1 - self.cooled / self.cooldown if self.cooldown else 1.0


class LanguageTrainer(Trainer[Net]):
    """The training of a model that predicts the next token, on the corpus."""

    FIGURES = ("loss", "answers", "exit")

    def __init__(
        self,
        net: Net,
        texts: Mapping[str, data.CorpusText | data.GeneratedText],
        plan: TrainingPlan,
        objective: Objective,
        rates: tuple[float, float],
        seed: int = 0,
        teacher: Net | None = None,
        mixture: dict[str, float] | None = None,
    ) -> None:
        super().__init__(net, plan, rates, seed)
        self.objective, self.teacher = objective, teacher
        self.taught_by: str | None = None  # the teacher's folder
        self.mixture = mixture or MIXTURE
        self.mixer = data.Mixer(texts, self.mixture, plan.lengths(), seed)
        self.place = self.mixer.state()
        self.dropout = dropout_rates(net.shape.layers, objective.dropout)
        self.loss_of = loss_of

    def load_state(self, state: dict) -> None:
        """Go on from `state`."""
        super().load_state(state)
        self.mixer.load_state(self.place)

    def batch(self, step: int, cooling: bool) -> tuple[Tensor, dict]:
        """The windows int64 [B, T + 1] of a step, and the place in the text after them."""
        windows = self.plan.windows(step, cooling)
        length = Random(f"{self.seed}/{step}").choices(list(windows), list(windows.values()))[0]
        return self.mixer.rows(length, max(1, self.plan.batch // length)), self.mixer.state()

    def loss(self, rows: Tensor) -> tuple[Tensor, Tensor, int]:
        """The loss of windows, figures of `loss_of`, and the tokens that were predicted."""
        objective = self.objective
        shape = self.net.shape
        wanted = None
        own = 0
        if self.teacher is not None:
            chance = self.chance if self.device.type == "cpu" else None
            rows = target_text(self.teacher, rows, objective, self.plan.prompt, self.chance, chance)
            rows, own = own_text(self.net, rows, objective.on_policy, self.plan.prompt, chance)
            wanted = teacher_of(self.teacher, rows) if objective.distil else None
        weights = 1 + (objective.answers - 1) * data.answer_mask(rows)[:, 1:]  # [B, T]
        weights = weights + (objective.questions - 1) * data.question_mask(rows)[:, 1:]
        if own:
            weights[len(rows) - own :] = 0  # what the draft wrote itself is no text to learn by heart
        keep = (
            draw_layer_mask(self.dropout, len(rows), self.chance).to(self.device)
            if objective.dropout
            else None
        )
        exit_at = torch.randint(max(1, shape.layers - 1), (), generator=self.chance).to(self.device)
        return *self.loss_of(self.net, rows, weights, exit_at, keep, wanted, objective), rows[:, 1:].numel()

    def measure(self, check: dict[str, Tensor]) -> dict[str, float]:
        """Nats a token of held-out windows by kind."""
        return {
            kind: held_out_loss(self.net, windows, asked=self.objective.questions > 0)
            for kind, windows in check.items()
        }

    def describe(self) -> dict:
        """Objective, the teacher's folder, and the shares of the kinds of text."""
        return {"objective": asdict(self.objective), "teacher": self.taught_by, "mixture": self.mixture}


@torch.no_grad()
def held_out_loss(net: Net, windows: Tensor, rows: int = 8, asked: bool = True) -> float:
    """Mean loss in nats a token over windows int64 [N, T]; without what a user says where `asked` is false."""
    device, total = next(net.parameters()).device, 0.0
    counts = (~data.question_mask(windows) | asked)[:, 1:]
    for part, some in zip(windows.split(rows), counts.split(rows), strict=True):
        with torch.autocast(device.type, torch.bfloat16):
            logits = net(part[:, :-1].to(device))
        total += float((token_loss(logits, part.to(device)) * some.to(device)).sum())
    return total / int(counts.sum())


class StopSignal:
    """Whether a signal asked to end."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.ask)

    def ask(self, *_: object) -> None:
        """Remember it until the step is done."""
        self.asked = True


def save(training: Trainer, file: Path) -> None:
    """Write the checkpoint whole under another name, then in one move."""
    torch.save(training.state(), file.with_suffix(".partial"))
    file.with_suffix(".partial").rename(file)


def measure_and_log(training: Trainer, check: dict) -> None:
    """Measure what is held out and note it: tokens so far, then the figures by name."""
    found = {name: round(value, 4) for name, value in training.measure(check).items()}
    training.history.append((training.tokens, found))
    print(
        f"held out at {training.tokens / 1e6:.2f}M: " + " ".join(f"{k} {v:.3f}" for k, v in found.items()),
        flush=True,
    )


def run(training: Trainer, args: argparse.Namespace, file: Path | None, check: dict) -> bool:
    """Train until tokens, minutes, cooldown or a signal end it, with checkpoints in `file`; whether the end was reached."""
    stop = StopSignal()
    begun = time.time()
    saved = time.time()
    checked = training.tokens
    durations, recent = [], []
    measure_and_log(training, check)
    while True:
        at, spent = time.time(), (time.time() - begun) / 60
        cooling, left = bool(training.cooldown), training.cooldown_left()
        if args.within:
            left = min(1.0, (1 - spent / args.within) / (1 - STEADY_SHARE))
            cooling = left < 1
        ended = left <= 0 or (
            not cooling and args.tokens is not None and training.tokens >= args.tokens * 1e6
        )
        if ended or stop.asked or (args.minutes and spent >= args.minutes):
            break
        figures, size = training.update(left, cooling and left <= training.long)
        recent.append(figures)
        durations = [*durations[-50:], time.time() - at]
        # a pause from outside is no work
        training.minutes += min(durations[-1], 3 * statistics.median(durations)) / 60
        if training.step % 20 == 0:
            means = torch.stack(recent).mean(0).tolist()
            said = " ".join(f"{name} {mean:.3f}" for name, mean in zip(training.FIGURES, means, strict=True))
            print(
                f"step {training.step} tokens {training.tokens / 1e6:.2f}M {said} "
                f"rate {rate(training.warm, training.plan.warmup, left):.2f} "
                f"{size / statistics.median(durations):.0f} tokens/s",
                flush=True,
            )
            recent = []
        if training.tokens - checked >= training.plan.check * 1e6:
            checked = training.tokens
            measure_and_log(training, check)
        if file and time.time() - saved > SAVE:
            save(training, file)
            saved = time.time()
    measure_and_log(training, check)
    if file:
        save(training, file)
    return ended


def begin(args: argparse.Namespace, mixture: dict[str, float]) -> tuple[LanguageTrainer, Path]:
    """The training that the arguments ask for, from its checkpoint where there is one, and the file of its checkpoints."""
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.manual_seed(args.seed)
    net = Net.from_folder(args.source) if args.source else Net(SHAPES[args.name])
    objective = Objective(
        **asdict(OBJECTIVES[args.name])
        | {k: v for k in asdict(Objective()) if (v := getattr(args, k)) is not None}
    )
    teacher = Net.from_folder(args.teacher).to(device).eval() if args.teacher else None
    if teacher is None and objective.needs_target:
        less = " ".join(
            f"--{k.replace('_', '-')} 0" for k in ("distil", "target_text") if getattr(objective, k)
        )
        raise SystemExit(
            f"{args.name} is distilled: name its target's folder, --teacher assets/models/lab, or {less}."
        )
    rates = (args.lr or RATES[args.name][0], args.embed_lr or RATES[args.name][1])
    given = {"steady": windows_of(args.windows, net.shape.context), "course": ()} if args.windows else {}
    plan = replace(
        PLANS[device.type], **COURSES[args.name] | given | ({"batch": args.batch} if args.batch else {})
    )
    texts = texts_of(mixture, "train", args.text)
    training = LanguageTrainer(net.to(device), texts, plan, objective, rates, args.seed, teacher, mixture)
    training.taught_by, training.long = args.teacher, args.long
    if args.compile if args.compile is not None else device.type == "cuda":
        training.loss_of = torch.compile(loss_of, dynamic=False)
    steady, cool = BUILD / f"{args.as_name}.pt", BUILD / f"{args.as_name}-cooldown.pt"
    if args.fresh:
        steady.unlink(missing_ok=True)
        cool.unlink(missing_ok=True)
    begun = (
        torch.load(steady, map_location="cpu")["tokens"]
        if args.cooldown and cool.exists() and steady.exists()
        else None
    )
    if args.cooldown and try_resume(
        training,
        cool,
        args,
        lambda s: (
            s["cooled"] < s["cooldown"] == int(args.cooldown * 1e6)
            and begun in (None, s["tokens"] - s["cooled"])
        ),
    ):  # not an older branch
        return training, cool
    if not try_resume(training, steady, args):
        training.source = args.source
        print(f"begins with {args.source or 'fresh weights'}", flush=True)
    return training, steady


def open_checkpoint(training: Trainer, args: argparse.Namespace) -> Path:
    """The file of its checkpoints; the training goes on from it if there is one and it is not to begin again."""
    file = BUILD / f"{args.as_name}.pt"
    BUILD.mkdir(parents=True, exist_ok=True)
    if args.fresh:
        file.unlink(missing_ok=True)
    if not try_resume(training, file, args):
        training.source = args.source
        print(
            f"begins with {args.source or 'fresh weights'}, {count_weights(training.net):,} numbers",
            flush=True,
        )
    return file


def try_resume(
    training: Trainer, file: Path, args: argparse.Namespace, fits: Callable[[dict], bool] = lambda _: True
) -> bool:
    """Whether the training now goes on from `file`: that it exists, is ours and fits."""
    if args.trial or not file.exists():
        return False
    state = torch.load(file, map_location=training.device)
    if not {"net", "origin"} <= state.keys():
        raise SystemExit(
            f"{file} was written by an earlier version of this script: move it away, or give --fresh."
        )
    if not fits(state):
        return False
    training.load_state(state)
    print(f"goes on from {file.name} at {training.tokens / 1e6:.2f}M tokens", flush=True)
    return True


def main() -> None:  # noqa: PLR0915
    """Train, write the folder, and note how it was made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument(
        "--from", dest="source", metavar="FOLDER", help="begin with these weights, not from nothing"
    )
    parser.add_argument("--tokens", type=float, help="millions at which the constant rate ends")
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on")
    parser.add_argument(
        "--cooldown", type=float, help="millions of tokens over which the rate falls; then write the folder"
    )
    parser.add_argument(
        "--long", type=float, default=1.0, metavar="SHARE", help="of a cooldown, its end, in long windows"
    )
    parser.add_argument("--within", type=float, help="minutes for all of it, the fall of the rate included")
    parser.add_argument("--teacher", metavar="FOLDER", help="the target of a draft")
    for name, default in asdict(Objective()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), help="see losses.Objective")
    parser.add_argument("--lr", type=float, help="of the matrices (Muon)")
    parser.add_argument("--embed-lr", type=float, help="of embedding and norms (AdamW)")
    parser.add_argument("--mixture", nargs="+", default=(), metavar="KIND=SHARE", help="of the tokens")
    parser.add_argument(
        "--windows", nargs="+", metavar="TOKENS=SHARE", help="of the steps, while the rate is constant"
    )
    parser.add_argument("--batch", type=int, help="tokens a step")
    parser.add_argument("--text", type=Path, default=data.TOKENS, help="token ids of the corpus")
    parser.add_argument(
        "--out", metavar="FOLDER", help="model folder to write; assets/models/NAME without it"
    )
    parser.add_argument("--as", dest="as_name", help="name of the checkpoints; NAME without it")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, help="the loss; by default on CUDA alone"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget the checkpoints")
    parser.add_argument("--trial", action="store_true", help="read and write no checkpoint and no folder")
    args = parser.parse_args()
    args.as_name = args.as_name or args.name
    torch.set_num_threads(args.threads)
    try:
        training, file = begin(args, mixture_of(args.name, args.mixture))
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from None
    check = held_out_by_name(training.mixture, args.text)
    at_end = True
    if not training.cooldown and (args.tokens is not None or args.within or not args.cooldown):
        at_end = run(training, args, None if args.trial else file, check)
    if at_end and args.cooldown:
        if not training.cooldown:
            training.cooldown, training.cooled = int(args.cooldown * 1e6), 0
        at_end = run(training, args, None if args.trial else BUILD / f"{args.as_name}-cooldown.pt", check)
    if at_end and not args.trial and (args.cooldown or args.within):
        write(training, args)


def write(training: Trainer, args: argparse.Namespace) -> None:
    """Write the model folder, with the tokenizer where it lacks it, and the record that the model card is made from."""
    folder = Path(args.out or MODELS / args.name)
    training.net.to_folder(folder)
    for part in ("tokenizer.json", "tokenizer_config.json"):
        if not (folder / part).exists():
            shutil.copy(data.TOKENIZER.parent / part, folder / part)
    note(training, args)


def note(training: Trainer, args: argparse.Namespace) -> None:
    """Add this training to the model's record, behind those that made the weights it began with."""
    run = {
        "origin": training.origin,
        "source": training.source,
        "command": " ".join(sys.argv[1:]),
        "steps": training.step,
        "tokens": training.tokens,
        "minutes": round(training.minutes, 1),
        "device": training.device.type,
        "batch": training.plan.batch,
        "rates": training.rates,
        **training.describe(),
        "held_out": training.history,
    }
    file = RECORDS / f"{args.as_name}.json"
    before = json.loads(file.read_text()) if training.source and file.exists() else []
    RECORDS.mkdir(exist_ok=True)
    file.write_text(
        json.dumps([*(r for r in before if r["origin"] != training.origin), run], indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
