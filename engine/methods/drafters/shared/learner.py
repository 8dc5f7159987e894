"""Learner: trains a draft model while it drafts, on a copy of its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.decoder import Decoder, Layer
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.model.layers.norm import single_weight

MOST_BYTES = 2 << 30  # limit of a copy, with the optimiser's averages
NORM = 1.0  # the gradient is scaled down to this norm
LOSSES = ("forward", "reverse", "jsd")


class Learner(Decoder):
    """The decoder `origin` until the first update, and from then on a copy of it.

    `origin` is never written to.

    Each update makes new weights in origin's type and layout from a master in float32 (float64, if origin is). It is one step
    of AdamW at a constant rate, without decay. updates: the number of updates so far; bytes: of all copies, 0 before the first
    update.
    """

    def __init__(self, origin: Decoder, rate: float):
        self.share(origin)
        self.origin = origin
        self.rate = rate
        self.updates = 0
        self.bytes = 0
        self._master: Decoder | None = None
        self._optimizer: torch.optim.AdamW | None = None
        _check_teachable(origin)

    @classmethod
    def from_decoder(cls, decoder: Decoder, rate: float) -> Learner:
        """An untrained learner for a decoder, or for the origin of another learner.

        Raises EngineFault if the model is too large to be copied, or has no gradient here.
        """
        return cls(decoder.origin if isinstance(decoder, Learner) else decoder, rate)

    def __deepcopy__(self, memo: object) -> Learner:
        twin = copy.copy(self)
        if self._master is not None and self._optimizer is not None:
            with torch.inference_mode(False):
                twin._start(self._master)
                assert twin._optimizer is not None
                twin._optimizer.load_state_dict(copy.deepcopy(self._optimizer.state_dict()))
        return twin

    def learn(
        self, tokens: Sequence[int], start: int, rows: Sequence[int], p: Tensor, loss: str = "forward"
    ) -> float | None:
        """Run one update and return the loss before it; None, and no update, if the loss or its gradient is not finite.

        - tokens: a stretch of text that starts at position `start`
        - rows: places in it; the update moves the distributions of the tokens after them towards p, float [R, V]
        - loss: "forward": KL(p || q) + H(p), the soft cross-entropy; "reverse": KL(q || p); "jsd": the mean of both to the
          middle
        """
        with torch.inference_mode(False), torch.enable_grad():
            if self._master is None:
                self._start(self.origin)
            master, optimizer = self._master, self._optimizer
            assert master is not None and optimizer is not None
            probe = Probe(Needs(hidden=frozenset({"final"})))
            master.forward(Feed.causal_chain(list(tokens), start, self.device, logits="last"), None, probe)
            z = F.linear(probe.hidden["final"][0, list(rows)], master.head)[:, : self.usable]
            cap = self.spec.logit_cap
            value = distillation_loss(
                p.clone().to(z.dtype), z if cap is None else cap * (z / cap).tanh(), loss
            )
            optimizer.zero_grad()
            value.backward()
            norm = torch.nn.utils.clip_grad_norm_(_all_weights(master), NORM)
            if not bool(torch.isfinite(norm) & torch.isfinite(value.detach())):
                return None
            optimizer.step()
            self.updates += 1
            self._renew()
            return float(value.detach())

    def _start(self, source: Decoder) -> None:
        """Copy `source` to a master, and create a fresh optimiser."""
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        master = Decoder(
            self.spec, *map_weights(source, lambda x: x.detach().to(wide, copy=True).requires_grad_())
        )
        self._master = master
        self._optimizer = torch.optim.AdamW(_all_weights(master), lr=self.rate, weight_decay=0.0)
        self.bytes = _memory_bytes(self.origin)

    def _renew(self) -> None:
        """Rebuild the weights that passes read from the master."""
        assert self._master is not None
        fresh = copy.copy(self._master)
        fresh.embed, fresh.layers, fresh.norm, fresh.head = map_weights(
            fresh, lambda x: x.detach().to(self.dtype, copy=True)
        )
        fresh.unembedding = fresh.head
        if self.origin.unembedding.is_mkldnn or len(self.origin.norm) != self.spec.d_model:
            fresh = fresh.pack_weights()
        self.embed = fresh.embed
        self.layers = fresh.layers
        self.norm = fresh.norm
        self.head, self.unembedding = fresh.head, fresh.unembedding


def distillation_loss(p: Tensor, z: Tensor, loss: str) -> Tensor:
    """The mean over rows of the distance `loss` (see `Learner.learn`) of distributions p [R, V] from softmax(z), z [R, V]."""
    q = z.log_softmax(-1)
    if loss == "forward":
        return -(p * q).sum(-1).mean()
    tiny = torch.finfo(p.dtype).tiny
    p = p.clamp_min(tiny).log()  # a float32 distribution may hold zeros
    if loss == "reverse":
        return (q.exp() * (q - p)).sum(-1).mean()
    middle = torch.logaddexp(p, q) - torch.log(q.new_tensor(2.0))
    return ((p.exp() * (p - middle)).sum(-1) + (q.exp() * (q - middle)).sum(-1)).mean() / 2


def map_weights(
    decoder: Decoder, change: Callable[[Tensor], Tensor]
) -> tuple[Tensor, list[Layer], Tensor, Tensor]:
    """Embedding, layers, norm and head with `change` applied to every weight, as plain rows; a tied head stays tied."""
    d = decoder.spec.d_model

    def layer(one: Layer) -> Layer:
        tensors = {f.name: unpack(x) for f in fields(one) if (x := getattr(one, f.name)) is not None}
        tensors |= {name: single_weight(tensors[name], d) for name in ("attn_norm", "mlp_norm")}
        return Layer(**{name: change(x) for name, x in tensors.items()})

    embed = change(decoder.embed)
    head = embed if decoder.head is decoder.embed else change(unpack(decoder.head))
    return embed, [layer(x) for x in decoder.layers], change(single_weight(decoder.norm, d)), head


def _all_weights(decoder: Decoder) -> list[Tensor]:
    """Every weight once."""
    tensors = [x for one in decoder.layers for f in fields(one) if (x := getattr(one, f.name)) is not None]
    return [decoder.embed, decoder.norm, *([] if decoder.head is decoder.embed else [decoder.head]), *tensors]


def _memory_bytes(origin: Decoder) -> int:
    """Bytes that a learner holds in addition to `origin`: weights as they are read, the master, its gradient and AdamW's two
    averages.
    """
    size = origin.embed.element_size()
    return origin.spec.params * (size + 4 * max(size, 4))


def _check_teachable(origin: Decoder) -> None:
    """Raise EngineFault if the model cannot be trained here."""
    held, spec = _memory_bytes(origin), origin.spec
    if held > MOST_BYTES:
        raise EngineFault(
            "out_of_memory",
            f"Learning {spec.name} ({spec.params:,} parameters) would take {held >> 20:,} MiB in addition; "
            f"{MOST_BYTES >> 20:,} are the limit: choose a smaller draft model, or the drafter draft_model.",
        )
    if (reason := gradient_conflict(spec)) is not None:
        raise EngineFault("bad_input", reason)


def gradient_conflict(spec: ModelSpec) -> str | None:
    """Why a model of this shape has no gradient here; None if it has one."""
    if spec.attn_cap is None:
        return None
    return (
        f"{spec.name} caps its attention scores, through which no gradient is computed here: choose another draft model, or "
        "the drafter draft_model."
    )
