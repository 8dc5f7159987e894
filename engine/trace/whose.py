"""Whose text a run wrote: the target's own, or one that may differ from it, why, and from where on it does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from decodescope.engine.core.roles import DRAFTS, WHOLE

from .events import Header
from .parts import said

TARGETS = "the target's text"
# what a cache policy does, in words: why a text may differ from the target's
DEEDS = {
    "evict": "entries leave the cache",
    "merge": "entries of the cache become one",
    "pack": "entries are stored in fewer bits",
    "select": "a pass does not read every entry",
}
LEFT_OUT = "layers are left out"


def mark(header: Header) -> tuple[str, str]:
    """One mark for a whole run: "the target's text" and "", or "text may differ" and "because: ..." in the words of its parts.
    Where another law stands in the place of the target's the text is that one's. Where tokens are drawn, a text of the
    target's is one of its distribution."""
    if header.lossless:
        whose = TARGETS if law(header) is None else f"text of the law {_name(header, 'law')}"
        return whose, "" if said(header, "sampler").get("greedy") else "in distribution"
    return "text may differ", "because: " + "; ".join(reasons(header))


def text_mark(header: Header) -> str:
    """The same in one line."""
    return ", ".join(x for x in mark(header) if x)


def reasons(header: Header) -> list[str]:
    """Why the text of a run may differ from the target's, each with the part that is the cause; at least one."""
    words = [(kind, _changes(header, kind)) for kind in header.method]
    causes = [f"{why} ({_name(header, kind)})" for kind, why in words if why]
    if header.forced:
        causes.append("verdicts were forced")
    if header.loaded is not None:
        causes.append(_loaded(header.loaded))
    if causes:
        return causes
    if header.fork is not None:
        return ["before the fork another method decoded"]
    drafts = said(header, "drafter").get("drafts", True)
    if drafts and "acceptance" in header.method and not said(header, "acceptance").get("usual"):
        return [f"the rule keeps other tokens too ({_name(header, 'acceptance')})"]
    return ["the method changes the target's distribution"]


def law(header: Header) -> dict[str, Any] | None:
    """Name and knobs of the law that stands in the place of the target's; None: the target's own."""
    part = header.method.get("law")
    return part if isinstance(part, dict) and not said(header, "law").get("usual") else None


def is_plain(header: Header) -> bool:
    """Whether every token was the choice of the target's law, or of the one in its place, one a pass: what other runs of the
    prompt are held against."""
    usual = bool(said(header, "strategy").get("usual"))
    return header.lossless and usual and not said(header, "drafter").get("drafts", True)


def setting(header: Header) -> str:
    """Model, prompt, law with its models, sampler and, where that draws, the seed, in short: lossless runs with one setting
    wrote one text."""
    seed = None if said(header, "sampler").get("greedy") else header.seed
    sampler = {} if seed is None else header.method.get("sampler")
    model = header.model.get("fingerprint") or header.model.get("name")
    words: list[Any] = [model, header.dtype, header.prompt.tolist(), sampler, seed]
    if (own := law(header)) is not None:
        words += [own, {role: x.get("fingerprint") for role, x in header.lanes.items() if role not in (*DRAFTS, WHOLE)}]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def away(tokens: Sequence[int], plain: Sequence[int], whose: str = "plain decoding") -> str:
    """Where a text parts from that of plain decoding, counted from 1, in words; both without the prompt."""
    pairs = enumerate(zip(tokens, plain, strict=False), 1)
    at = next((i for i, (x, y) in pairs if x != y), None)
    common = min(len(tokens), len(plain))
    return f"as {whose} for {common} tokens" if at is None else f"parted from {whose} at token {at}"


def _loaded(loaded: Mapping[str, Any]) -> str:
    """What of the prompt came from a saved cache, in words."""
    bits = loaded.get("bits")
    how = f", in {bits:.3g} bits a number" if isinstance(bits, int | float) and not isinstance(bits, bool) else ""
    return f"{loaded['entries']} entries of the prompt were loaded from a file{how}"


def _changes(header: Header, kind: str) -> str:
    words = said(header, kind)
    if "changes" in words:
        return str(words["changes"])
    deeds = [DEEDS[x] for x in words.get("does", []) if x in DEEDS]
    return ", ".join(deeds) or (LEFT_OUT if kind == "depth" and not words.get("exact") else "")


def _name(header: Header, kind: str) -> str:
    part = header.method[kind]
    return str(part.get("name", kind)).replace("_", " ") if isinstance(part, dict) else kind
