"""NEST: mixes the target's distribution with the tokens that followed its nearest states in a body of text."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.guidance import Guidance
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.drafters.shared.datastore import HELP, LARGEST, load_datastore
from decodescope.engine.trace.records.choices import Choice

from .shared.states import states_of

SHOWN = (
    5  # recorded candidates of each kind: the likeliest of the mixture, of the target and of the neighbours
)
NAMED = 8  # places that the trace names


@component
class Nest(Guidance):
    """p' = c p + (1 - c) p_kNN. p is the target's distribution. p_kNN looks up states similar to the target's state h in a
    datastore, a text that the target has read. The `neighbours` places with the smallest squared distance d = |h - k|^2 count.
    Each gives its next token the weight softmax(-d / (temperature sqrt(d_model))). c, the relative retrieval confidence, is
    sigmoid((min d / max d - alpha) / tau) over these neighbours. If the nearest is no nearer than the furthest, retrieval has
    no information and p stays. With an empty store p' is p.

    The state is the input of the last layer, `hidden_states[-2]` in the authors' code. They compare it unscaled. If a few
    components are huge, as in `lab`, one neighbour then gets all the weight. So by default, a state is first divided by its
    root mean square (`state_norm`), and the temperature means the same in every model. The datastore is that of the drafter
    `rest`: its first `datastore_tokens` tokens, read in separate windows of `window` tokens. The first run that needs it reads
    it, in addition to the passes in the trace, and it is kept as long as the model. Distances to all M states are one exact
    product [N + 1, d] x [d, M]; of equal ones at the end, either may be left out. Costs this product, M d numbers of memory,
    and a state of each row.

    This implements only the paper's distribution. Any drafter can draft: `rest` with the same datastore copies what followed
    the longest n-gram. NEST instead copies up to 64 tokens behind the best neighbour if c < 0.5 (beta), and goes on in the same
    passage as long as its last token stays. Rules here are exact for p'. NEST's relaxed rule, which keeps a copied token with
    p'(x) > 0.5 gamma max p', gamma = 5e-4, is left out. Two more things are left out: NEST first chooses passages, by BM25 and
    a dense retriever, and never finds a used place again. NEST's temperature of 0.7 on p alone is absent here, because the
    sampler comes after p'.
    """

    title = "NEST"
    source = "Li et al. 2024, arXiv:2405.19325; facebookresearch/NEST, models/knn_transformers.py and generation.py"
    caution = "What follows similar states in a foreign text is another text's style: choose one that is to be quoted."
    tells: ClassVar[dict[str, Note]] = {
        "own": Note("node", "own share", "", "c, the weight of the target's own distribution after the node"),
        "nearest": Note(
            "node", "nearest place", "position", "in the datastore, of what followed the nearest state"
        ),
        "distance": Note("node", "distance", "", "of that state, squared, over the root of d_model"),
        "neighbours": Note(
            "set", "neighbours", "position", "in the datastore, of what followed the root's nearest states"
        ),
    }

    datastore: str = param("", file=True, most=LARGEST, help=HELP)
    datastore_tokens: int = param(
        8192, low=0, high=1 << 17, unit="tokens", help="how much of the datastore to read; 0: no retrieval"
    )
    window: int = param(
        256,
        low=2,
        high=4096,
        unit="tokens",
        help="length of the windows in which the datastore is read, each without context",
    )
    state_norm: str = param(
        "rms",
        choices=("rms", "raw"),
        help="divide states by their root mean square (rms), or keep them as they are (raw)",
    )
    neighbours: int = param(1024, low=1, high=4096, unit="places", help="how many nearest states to retrieve")
    alpha: float = param(
        0.3,
        low=0.0,
        high=2.0,
        step=0.05,
        help="min d / max d of the neighbours at which model and retrieval weigh the same",
    )
    tau: float = param(
        0.1,
        low=0.01,
        high=1.0,
        step=0.01,
        help="softness of the transition between retrieval and model around alpha",
    )
    temperature: float = param(
        1.0,
        low=0.01,
        high=100.0,
        step=0.1,
        help="softmax temperature of the neighbours' distances, in units of sqrt(d_model)",
    )

    def pass_needs(self, spec: ModelSpec) -> Needs:
        return Needs(hidden=frozenset({spec.n_layers - 1}))

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            rule = method.adaptive_depth.name
            return (
                f"nest compares states before the last layer, which {rule} may leave out: choose all_layers."
            )
        return None

    def begin(self, ctx: Context) -> None:
        decoder = ctx.target.decoder
        ids = load_datastore(self.datastore, ctx.encode, decoder.vocab).ids[: self.datastore_tokens]
        self._layer = decoder.spec.n_layers - 1
        self._terms: tuple[Tensor, ...] | None = None
        states, self._follows, self._places = states_of(
            decoder, ids, min(self.window, decoder.spec.max_positions)
        )
        self._keys = self._scale_states(states)
        self._squares = self._keys.square().sum(-1)  # [M], of their lengths

    def _scale_states(self, states: Tensor) -> Tensor:
        """The states [R, d], scaled for comparison."""
        return F.rms_norm(states, states.shape[-1:], eps=1e-12) if self.state_norm == "rms" else states

    def rows(self, logits: Tensor, hidden: dict[int | str, Tensor], draft: Draft, ctx: Context) -> Tensor:
        if not len(self._keys):
            return logits
        log_p = logits.log_softmax(-1)
        h = self._scale_states(hidden[self._layer][0, : len(logits)].to(self._keys.dtype))
        # [N + 1, M]
        d = (h.square().sum(-1, keepdim=True) + self._squares - 2 * h @ self._keys.T).clamp_min_(0)
        # [N + 1, k], the nearest first
        d, near = d.topk(min(self.neighbours, len(self._keys)), largest=False)
        heat = self.temperature * math.sqrt(h.shape[-1])
        weights = (-d / heat).softmax(-1).to(logits.dtype)
        kNN = torch.zeros_like(logits).scatter_add_(-1, self._follows[near], weights)
        # 0 for equal states: they could not be nearer
        ratio = d[:, 0] / d[:, -1].clamp_min(torch.finfo(d.dtype).tiny)
        z = ((ratio - self.alpha) / self.tau).to(logits.dtype)[:, None]
        law = torch.logaddexp(F.logsigmoid(z) + log_p, F.logsigmoid(-z) + kNN.log())
        self._terms = (log_p.exp(), kNN, z.sigmoid()[:, 0], law.exp())
        self._near = (d[:, 0] / math.sqrt(h.shape[-1]), self._places[near])
        return law

    def notes(self) -> dict[str, Any]:
        if self._terms is None:
            return {}
        distance, places = self._near
        nearest = {"nearest": places[:, 0].tolist(), "neighbours": places[0, :NAMED].tolist()}
        return {"own": self._terms[2].tolist(), "distance": distance.tolist(), **nearest}

    def choices(self, rows: list[int], tokens: list[int]) -> list[Choice]:
        return (
            []
            if self._terms is None
            else [self._choice(x, token) for x, token in zip(rows, tokens, strict=True)]
        )

    def _choice(self, row: int, token: int) -> Choice:
        """The record of the place of one row, where `token` was written."""
        assert self._terms is not None
        p, kNN, c, law = (x[row] for x in self._terms)
        likely = [x.topk(min(SHOWN, len(x))).indices.tolist() for x in (law, p, kNN)]
        ids = sorted(
            {token, *likely[0], *likely[1], *likely[2]}, key=lambda x: (-float(law[x]), -float(p[x]))
        )
        terms = {"p": p[ids].tolist(), "p_kNN": kNN[ids].tolist()}
        weights = {"p": float(c), "p_kNN": 1 - float(c)}
        return Choice(ids, ids.index(token), terms, weights, [*law[ids].tolist()], joined="mixture")
