"""Online speculative decoding: the draft model learns from the tokens that the target rejects, while it drafts."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.learner import LOSSES, Learner, gradient_conflict
from ..shared.model_tree import scheduled_chain

MEMORY = 0.95  # weight of the previous average after each token that the target judged


@component
class Online(DrawnDrafter):
    """Speculative sampling as in `draft_model`, with a draft model that is distilled from the target during decoding:

    1. Where the target rejected a drafted token, the place and the target's distribution there, p, go into a buffer.
    2. When the buffer holds `update_interval` new places, one gradient step moves the draft model's distributions q at all its
       places towards p. The loss is the mean of the soft cross-entropy -sum p log q (`forward`), KL(q || p) (`reverse`), or
       half of both to the middle (`jsd`). p and q are without the sampler. For the step, the model reads the last `window`
       tokens of the text again.
    3. The buffer is cleared but for its last `replay_size` places, and the draft model reads the text again.

    Updates happen between a verification and the next draft. So the q of every node is the distribution that drew it, and the
    text always keeps the target's distribution. Only this session's copy of the draft model is trained. The model file and
    other users of the model do not change, and the next session starts from the original weights.

    An update costs a pass and its gradient over the window, and a pass over the text. After the first update, memory is 18
    bytes per parameter in half precision, 20 in float32, and V numbers per place. Notes, `online`: `updates`, `loss` of the
    last one before its step, `buffer`, `accepted` (moving average of the share of judged tokens), `bytes`, `learn_us`.

    The paper learns over a stream of requests; here a session is one text. The authors update every 8 requests, at a rate of
    1e-4 with a draft of 160 M parameters. The rate here is for a draft of 1 M. Their released trainer marks the last token of
    every verification, also a bonus token, and takes the distribution that follows it. This code takes the distribution that
    rejected. `replay_size` is an addition of this project.
    """

    title = "Online speculative decoding"
    source = "Liu et al. 2024, arXiv:2310.07177; LiuXiaoxuanPKU/OSD, distill/distill_trainer.py"
    lanes = ("draft",)
    tells: ClassVar[dict[str, Note]] = {
        "online.updates": Note("series", "updates", what="gradient steps so far"),
        "online.loss": Note("series", "loss", "nats", "of the last update, before its step"),
        "online.buffer": Note(
            "series", "buffer", "places", "that wait to be learned from", line="update_interval"
        ),
        "online.accepted": Note("series", "accepted", what="moving average of the share of judged tokens"),
        "online.bytes": Note("series", "memory", "bytes", "of what learns"),
        "online.learn_us": Note("clock", "update", "µs", "time of the last update"),
    }

    max_draft_tokens: int = param(5, low=1, high=16, unit="tokens", help="maximum length of a draft (gamma)")
    update_interval: int = param(
        8,
        low=1,
        high=256,
        unit="places",
        help="rejected tokens to collect before each update of the draft model (I)",
    )
    learning_rate: float = param(
        1e-3, low=0.0, high=0.1, step=1e-4, help="constant learning rate of the AdamW optimizer"
    )
    loss: str = param(
        "forward",
        choices=LOSSES,
        help="distillation loss: forward KL(p || q), reverse KL(q || p), or Jensen-Shannon (jsd)",
    )
    replay_size: int = param(
        0,
        low=0,
        high=256,
        unit="places",
        help="newest rejections to learn from again in the next update; 0: none",
    )
    window: int = param(
        256,
        low=8,
        high=2048,
        unit="tokens",
        help="length of the text before the latest rejected token that each update reads",
    )

    @property
    def uses_schedule(self) -> bool:
        return True

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        return gradient_conflict(spec)

    def begin(self, ctx: Context) -> None:
        self._lane: Lane = ctx.lanes["draft"]
        if isinstance(self._lane.decoder, Learner):  # a restarted run begins with the untrained draft model
            self._lane.truncate(0)
        self._lane.decoder = self._learner = Learner.from_decoder(self._lane.decoder, self.learning_rate)
        self._places: list[tuple[int, Tensor]] = []  # position of the refused token, and p [V] there
        self._new = 0
        self._loss: float | None = None
        self._us = 0.0
        self._hits, self._judged = 0.0, 0.0

    def propose(self, ctx: Context) -> Draft:
        self._text, self._position = ctx.tokens, ctx.position
        draft = scheduled_chain(ctx, self.max_draft_tokens)
        if draft.tokens:
            draft.notes = {**(draft.notes or {}), "online": self._notes()}
        return draft

    def observe(self, outcome: DraftOutcome) -> None:
        drafted, path = len(outcome.draft), outcome.verdict.path
        if not drafted or outcome.verdict.token is None:  # nothing was judged, or the text has ended
            return
        refused = len(path) < drafted
        self._average(len(path), refused)
        if not refused:
            return
        row = (path[-1] if path else ROOT) + 1
        self._places.append((self._position + len(path), outcome.logits[row].softmax(-1)))
        self._new += 1
        if self._new == self.update_interval:
            self._update()

    def _average(self, accepted: int, refused: bool) -> None:
        for hit in (*[1.0] * accepted, *[0.0] * refused):
            self._hits, self._judged = MEMORY * self._hits + hit, MEMORY * self._judged + 1

    def _update(self) -> None:
        """One gradient step on the buffer's places that the window still holds."""
        clock, last = self._lane.executor, self._places[-1][0]
        began = clock.mark()
        start = max(0, last - self.window)
        places = [(at, p) for at, p in self._places if at > start]
        rows, p = [at - 1 - start for at, _ in places], torch.stack([p for _, p in places])
        self._loss = self._learner.learn(self._text[start:last], start, rows, p, self.loss)
        self._places = self._places[len(self._places) - self.replay_size :] if self.replay_size else []
        self._new = 0
        self._lane.truncate(0)  # its keys and values come from the old weights
        self._lane.read(self._text[:-1])
        self._us = clock.elapsed_us(began, clock.mark())

    def _notes(self) -> dict[str, Any]:
        return {
            "updates": self._learner.updates,
            "loss": None if self._loss is None else round(self._loss, 4),
            "buffer": len(self._places),
            "accepted": round(self._hits / self._judged, 4) if self._judged else None,
            "bytes": self._learner.bytes,
            "learn_us": round(self._us, 1),
        }
