"""KOALA's adversary: a net that learns to distinguish the target's distributions from those of a draft head.

The head learns to pass for the target. Zhang et al. (2408.08146) add the loss of a generator against a discriminator to what a
draft head minimises anyway. Three details are recalled from the paper: both losses are the usual cross-entropies, the
generator's is in its form that does not saturate, and the discriminator sees only distributions, not what they are
distributions of. Decoding is the host's. Their second layer of a head is not here: the heads' own shapes say how deep they are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Discriminator(nn.Module):
    """How sure it is that a distribution over V tokens is the target's, as a logit.

    It has two layers over the roots of the probabilities, which are a vector of length 1 whatever V is. The roots are our
    choice.
    """

    def __init__(self, vocabulary: int, width: int, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # so that the head's training draws what it would without
            torch.manual_seed(seed)
            self.inner, self.outer = nn.Linear(vocabulary, width), nn.Linear(width, 1)

    def forward(self, logits: Tensor) -> Tensor:
        """float [n] of logits [n, V]; ids whose logit is -inf have no root and no gradient."""
        sure: Tensor = self.outer(F.silu(self.inner((logits.float().log_softmax(-1) / 2).exp())))
        return sure[:, 0]


class Adversary:
    """The discriminator of one draft head, trained together with it.

    weight: of the head's loss against it; at 0 the head's training is the host's to the bit, and this one only watches
    rate:   share of the distributions of the last lesson that it classified right, before it learnt from them
    """

    def __init__(
        self, vocabulary: int, weight: float, width: int = 64, lr: float = 1e-3, seed: int = 0
    ) -> None:
        self.net = Discriminator(vocabulary, width, seed)
        self.weight = weight
        self.rate = 0.5
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=lr, betas=(0.5, 0.9), weight_decay=0.0)
        self.shown: list[tuple[Tensor, Tensor]] = []

    def to(self, device: torch.device | str) -> Adversary:
        """The same one, there."""
        self.net.to(device)
        return self

    def adversarial_loss(self, p: Tensor, q: Tensor) -> Tensor:
        """float []: `weight` times - log D of the head's logits q [n, V]. Keeps them and the target's p [n, V] for `learn`."""
        self.shown.append((p.detach(), q.detach()))
        return self.weight * F.softplus(-self.net(q)).mean()

    def learn(self) -> None:
        """One step on all that was shown since the last: - log D(p) - log(1 - D(q))."""
        p, q = (torch.cat(x) for x in zip(*self.shown, strict=True))
        self.shown.clear()
        self.optimizer.zero_grad()  # the head's loss went through this net too
        theirs, ours = self.net(p), self.net(q)
        (F.softplus(-theirs).mean() + F.softplus(ours).mean()).backward()
        self.optimizer.step()
        self.rate = float(((theirs > 0).float().mean() + (ours <= 0).float().mean()) / 2)
