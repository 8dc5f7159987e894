"""How exact a run's text is, which runs are compared with each other, and where two texts diverge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from decodescope.engine.core.exactness import exactness_text
from decodescope.engine.core.roles import DRAFTS, WHOLE

from ..records.events import Header
from ..records.parts import part_description
from .causes import causes_shown


def exactness_mark(header: Header) -> tuple[str, str]:
    """The exactness of a whole run and why, in words: ("lossless", "") or ("lossy", "because: ..."). If tokens are drawn, an
    exact text is one of a distribution; the second part then notes that. Of a greedy lossless method it notes how its text
    compares with plain decoding's."""
    causes = causes_shown(header)
    why = "because: " + "; ".join(causes) if causes else ""
    drawn = header.is_exact and not part_description(header, "sampler").get("greedy")
    how = "in distribution" if drawn else _compare_bits(header)
    return exactness_text(header.exactness), "; ".join(x for x in (how, why) if x)


def _compare_bits(header: Header) -> str:
    """How the text of a greedy lossless method compares with plain decoding's on the same machine: with kernels that compute
    each row alike a token has the same logits, bit for bit, in any pass; with others the last bits depend on the rows."""
    if header.exactness != "lossless" or is_plain(header):
        return ""
    if header.kernels in ("rows", "triton"):
        return "the same bits as plain decoding"
    return "but for numerical ties" if header.dtype in ("bfloat16", "float16") else ""


def exactness_mark_text(header: Header) -> str:
    """The same in one line."""
    return ", ".join(x for x in exactness_mark(header) if x)


def guidance_record(header: Header) -> dict[str, Any] | None:
    """Name and knobs of the guidance that replaces the target's distribution; None: the target's own."""
    part = header.method.get("guidance")
    return part if isinstance(part, dict) and not part_description(header, "guidance").get("usual") else None


def is_plain(header: Header) -> bool:
    """True if every token was the choice of the target's distribution, or of the guidance that replaces it, one a pass. Other
    runs of the prompt are compared with such a run."""
    usual = bool(part_description(header, "strategy").get("usual"))
    return header.is_exact and usual and not part_description(header, "drafter").get("drafts", True)


def comparison_key(header: Header) -> str:
    """A short key of model, prompt, guidance with its models, sampler and, if that draws, the seed: exact runs with one
    setting wrote one text."""
    words = part_description(header, "sampler")
    seed = None if words.get("greedy") else header.seed
    sampler = {} if words.get("usual") else header.method.get("sampler")
    model = header.model.get("fingerprint") or header.model.get("name")
    facts: list[Any] = [model, header.dtype, header.prompt.tolist(), sampler, seed]
    if (own := guidance_record(header)) is not None:
        facts += [
            own,
            {role: x.get("fingerprint") for role, x in header.lanes.items() if role not in (*DRAFTS, WHOLE)},
        ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def describe_divergence(tokens: Sequence[int], plain: Sequence[int], whose: str = "plain decoding") -> str:
    """Where a text parts from that of plain decoding, counted from 1, in words; both without the prompt."""
    pairs = enumerate(zip(tokens, plain, strict=False), 1)
    at = next((i for i, (x, y) in pairs if x != y), None)
    common = min(len(tokens), len(plain))
    return f"as {whose} for {common} tokens" if at is None else f"parted from {whose} at token {at}"
