"""Run: train a head for a model on its own answers to prompts, in a folder from which a stopped training goes on."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decodescope.engine.core.files import write_json
from decodescope.engine.core.progress import Progress
from decodescope.engine.kernels.choice import kernels_set_to
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.draft_vocabulary import DraftVocabularyHead
from decodescope.engine.model.heads.files import HEADS, write_head
from decodescope.engine.session.load import Model

from .acceptance import DraftAcceptance, measure_acceptance
from .answers import AnswerSettings, TrainingError, TrainingText, readable_prompts, write_answers
from .batches import SHARE, batch_states, in_batches, plan_steps, split_held_out
from .card import format_card
from .checkpoint import read_checkpoint, write_checkpoint
from .loss import loss_of
from .optimizers import optimizers, rate
from .records import METRICS, RUN, read_metrics
from .shapes import frequent_ids, new_head, usual_shape
from .target import DecoderTarget

ANSWERS = "answers.jsonl"
CHECKPOINT = "checkpoint.pt"
CARD = "card.md"
LEAST_TEXTS = 2  # one to learn from, and one that is held out


@dataclass(frozen=True)
class TrainingSettings:
    """How a head is trained.

    kind: of the head;  tokens: of answers that it learns from, each as often as it is read
    shape: sizes of the net that are not the usual ones
    answer_tokens, window: tokens of an answer, and of prompt and answer together, at most;  temperature: of the answers
    batch_tokens: that a step reads;  lr, muon: the highest rates of the two optimizers (`optimizers`)
    every: steps between two measurements;  save: steps between two checkpoints;  seed: of everything that is drawn
    """

    kind: str
    tokens: int = 200_000
    shape: Mapping[str, int] = field(default_factory=dict)
    answer_tokens: int = 256
    window: int = 512
    temperature: float = 0.7
    batch_tokens: int = 2048
    lr: float = 4e-3
    muon: float = 3e-3
    every: int = 50
    save: int = 20
    seed: int = 0

    @property
    def answers(self) -> AnswerSettings:
        """How the model answers: until there is enough to read each answer once."""
        enough = -(-self.tokens * SHARE // (SHARE - 1))
        return AnswerSettings(self.answer_tokens, self.window, self.temperature, enough, self.seed)

    @property
    def places(self) -> float:
        """The share of places at which a step takes the loss: all where a head has a vocabulary of its own, which is small."""
        return 1.0 if issubclass(HEADS[self.kind], DraftVocabularyHead) else 0.25


@dataclass(frozen=True)
class TrainedHead:
    """A finished training. folder: of the head;  metrics: the measurements, the last one at the end"""

    folder: Path
    head: Head
    metrics: list[dict[str, Any]]
    seconds: float


def train_head(
    model: Model,
    prompts: Sequence[Sequence[int]],
    asked: TrainingSettings,
    out: Path,
    say: Callable[[str], None] = lambda text: None,
    each: Callable[[list[dict[str, Any]]], None] = lambda metrics: None,
) -> TrainedHead:
    """Train a head for the model on its own answers to the prompts (ids), in the folder `out`.

    The folder is a new one, an empty one, or that of the same training, which then goes on where it was. It gets the answers,
    a checkpoint, the measurements, a card, and the folder of the head, `out`/KIND, which `load` takes. A training that was
    stopped and goes on gives the numbers of one that was not.

    say: called with a line after each measurement;  each: called with all measurements so far, alike

    Raises TrainingError, in one sentence.
    """
    training = HeadTraining(model, prompts, asked, out, say, each)
    with kernels_set_to("torch"):  # for the many rows of a step torch's operators are faster
        training.learn()
    return training.finish()


class HeadTraining:
    """A training in its folder: answers are written, or read if they are there; the head is as its checkpoint left it."""

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Sequence[int]],
        asked: TrainingSettings,
        out: Path,
        say: Callable[[str], None],
        each: Callable[[list[dict[str, Any]]], None],
    ):
        self.model = model
        self.asked = asked
        self.out = out
        self.say = say
        self.each = each
        shape = usual_shape(asked.kind, model.spec, asked.shape)
        if len(readable_prompts(prompts, asked.answers)) < LEAST_TEXTS:
            raise TrainingError(
                f"A training needs {LEAST_TEXTS} prompts that leave a tenth of the window of {asked.window} tokens to their "
                "answers: give more prompts, shorter ones, or a larger window."
            )
        self._open_folder(prompts)
        texts = self._answer(prompts)
        self.texts, self.held_out = split_held_out(texts, asked.seed)
        if not self.texts:
            raise TrainingError(
                f"{model.name} answered fewer than {LEAST_TEXTS} of the prompts with two tokens or more: give other prompts."
            )
        self.target = DecoderTarget(model.decoder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(asked.seed)
            self.head = new_head(asked.kind, self.target, **shape).to(self.target.device)
        self.head.made_for = model.fingerprint
        if isinstance(self.head, DraftVocabularyHead):
            words = np.concatenate([np.array(x.answer) for x in self.texts])
            self.head.set_draft_vocabulary(frequent_ids(words, self.head.shape["kept"], self.target.vocab))
        self.layer = self.head.shape.get("layer", 0)
        self.steps = plan_steps(self.texts, asked.tokens, asked.batch_tokens, asked.seed)
        self.optimizers = optimizers(self.head.requires_grad_(True), asked.lr, asked.muon)
        self.bases = [x.param_groups[0]["lr"] for x in self.optimizers]
        place = read_checkpoint(out / CHECKPOINT, self.head, self.optimizers) or {}
        self.step: int = place.get("step", 0)
        self.tokens: int = place.get("tokens", 0)
        self.seconds: float = place.get("seconds", 0.0)
        self.losses: list[float] = place.get("losses", [])
        self.metrics = _read_metrics(out / METRICS, self.step)

    def learn(self) -> None:
        """Train to the last step, with a measurement now and then, and a checkpoint."""
        asked, began = self.asked, time.perf_counter() - self.seconds
        with Progress(f"training {asked.kind}", asked.tokens, "tokens") as progress:
            progress.at(self.tokens)
            while self.step < len(self.steps):
                texts = [self.texts[i] for i in self.steps[self.step]]
                self.losses.append(self._learn_from(texts))
                self.step += 1
                self.tokens += sum(len(x.answer) for x in texts)
                progress.at(self.tokens)
                last = self.step == len(self.steps)
                measured = last or self.step % asked.every == 0
                self.seconds = time.perf_counter() - began
                if measured:
                    self._measure()
                if measured or self.step % asked.save == 0:
                    self._save()
        self.head.requires_grad_(False)

    def finish(self) -> TrainedHead:
        """Write the folder of the head, and the card."""
        with kernels_set_to("torch"):
            acceptance = self._acceptance()
        self.head.requires_grad_(False)
        self.head.rates = acceptance.rates
        settings = {**asdict(self.asked), "shape": self.head.shape}
        settings["answer_tokens_most"] = settings.pop("answer_tokens")
        counts = {
            "prompts": len(self.texts) + len(self.held_out),
            "answer_tokens": sum(len(x.answer) for x in self.texts),
            "trained_tokens": self.tokens,
            "seconds": round(self.seconds, 1),
        }
        notes = {
            "made_with": {**settings, "model": self.model.name, **counts},
            "measured": {
                "accepted": [round(x, 5) for x in acceptance.accepted],
                "tokens_per_pass": round(acceptance.tokens_per_pass, 4),
                "held_out_prompts": len(self.held_out),
            },
        }
        folder = self.out / self.asked.kind
        write_head(self.head, folder, notes)
        card = format_card(self.model, self.head, notes, self.metrics, folder)
        part = self.out / f"{CARD}.partial"
        part.write_text(card, encoding="utf-8")
        os.replace(part, self.out / CARD)
        return TrainedHead(folder, self.head, self.metrics, self.seconds)

    def _open_folder(self, prompts: Sequence[Sequence[int]]) -> None:
        """Say in the folder what it is of; refuse the folder of something else."""
        asked = json.loads(json.dumps(asdict(self.asked)))
        digest = hashlib.sha256(json.dumps([list(map(int, x)) for x in prompts]).encode()).hexdigest()
        record = {"model": self.model.name, "fingerprint": self.model.fingerprint, "prompts": digest, **asked}
        path = self.out / RUN
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                if any(self.out.iterdir()):
                    raise TrainingError(f"{self.out} holds other files: give a new or an empty folder.")
                write_json(path, record)
            before = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TrainingError(f"Nothing can be written into {self.out}: {error.strerror}.") from None
        except json.JSONDecodeError:
            raise TrainingError(f"{path} is damaged: give a new folder.") from None
        odd = next((name for name in record if before.get(name) != record[name]), None)
        if odd is not None:
            was, now = ("other ones", "these") if odd == "prompts" else (before.get(odd), record[odd])
            raise TrainingError(
                f"{self.out} holds another training, whose {odd.replace('_', ' ')} was {was} and not {now}: give a new folder, "
                "or the options of that training."
            )

    def _answer(self, prompts: Sequence[Sequence[int]]) -> list[TrainingText]:
        with Progress(f"{self.model.name} answers", None, "tokens") as progress:
            return write_answers(
                self.model,
                prompts,
                self.asked.answers,
                self.out / ANSWERS,
                lambda n, most: progress.at(n, most),
            )

    def _learn_from(self, texts: Sequence[TrainingText]) -> float:
        """One step of the optimizers; the loss before it. What is drawn depends on the seed and the step alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.asked.seed << 32) + self.step)
            loss = loss_of(
                self.target, self.head, batch_states(self.target, texts, self.layer), self.asked.places
            )
        if not loss.isfinite():
            raise TrainingError(
                f"The loss is not finite at step {self.step + 1}: give a lower --lr and --muon, or another --seed."
            )
        if loss.requires_grad:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.head.parameters(), 5.0)
        for optimizer, base in zip(self.optimizers, self.bases, strict=True):
            optimizer.param_groups[0]["lr"] = base * rate(self.step, len(self.steps))
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.detach())

    def _acceptance(self) -> DraftAcceptance:
        batches = in_batches(self.held_out, self.asked.batch_tokens)
        return measure_acceptance(
            self.target, self.head, (batch_states(self.target, texts, self.layer) for texts in batches)
        )

    def _measure(self) -> None:
        """Add a line to the measurements."""
        acceptance = self._acceptance()
        row = {
            "step": self.step,
            "steps": len(self.steps),
            "tokens": self.tokens,
            "loss": sum(self.losses) / len(self.losses),
            "accepted": list(acceptance.accepted),
            "tokens_per_pass": acceptance.tokens_per_pass,
            "seconds": round(self.seconds, 2),
        }
        self.losses.clear()
        self.metrics.append(row)
        with (self.out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        left = self.seconds / self.step * (len(self.steps) - self.step)
        shares = ", ".join(f"{x:.1%}" for x in acceptance.accepted)
        self.say(
            f"step {self.step} of {len(self.steps)}, loss {row['loss']:.3f}, accepted by position {shares}, "
            f"{acceptance.tokens_per_pass:.2f} tokens a pass, {self.seconds:.0f} s, {left:.0f} s left"
        )
        self.each(self.metrics)

    def _save(self) -> None:
        place = {"step": self.step, "tokens": self.tokens, "seconds": self.seconds, "losses": self.losses}
        write_checkpoint(self.out / CHECKPOINT, self.head, self.optimizers, place)


def _read_metrics(path: Path, step: int) -> list[dict[str, Any]]:
    """The measurements up to `step`; those behind it, which will be made again, are taken off the file."""
    rows = [row for row in read_metrics(path) if row["step"] <= step]
    if path.exists():
        part = path.with_name(f"{path.name}.partial")
        part.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        os.replace(part, path)
    return rows
