"""Which entries the texts of a search have in common, followed by which of them went on from which."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod

from .events import CacheChange, Header, Step

Entry = tuple[int, int]  # the step that wrote it, and for which text of its batch
Node = tuple[int, int, int]  # first position, the one behind the last, texts that read it


class Texts:
    """The texts of a search as lists of the entries that they read behind a prompt of `n` tokens, whose last enters with the
    first step. Each pass writes an entry for each of its texts; then text b goes on behind text parents[b]."""

    def __init__(self, header: Header, n: int):
        self._first = n - 1
        self._paths: list[list[Entry]] | None = None
        given = [header.model.get(key) for key in ("n_layers", "n_kv_heads", "head_dim")]
        sizes: list[int] = [x for x in given if type(x) is int]
        size = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}.get(header.dtype)
        self._entry = 2 * size * prod(sizes) if size and len(sizes) == len(given) else None

    def problems(self, step: Step) -> Iterator[str]:
        """What the record of this step, the next one, says wrongly of the entries that its texts share."""
        if step.beams is None:
            return
        ran = [one.batch for one in step.passes if one.lane == "target"]
        if self._paths is None:
            self._paths = [[] for _ in range(ran[-1])] if ran else []
        if any(not 0 <= parent < len(self._paths) for parent in step.beams.parents):
            return  # the pass was not recorded, or the record says elsewhere what is wrong with it
        paths = [[*path, (step.step, i)] for i, path in enumerate(self._paths)]
        self._paths = [paths[parent] for parent in step.beams.parents] or paths
        for change in step.cache:
            if change.lane == "target" and change.shared is not None:
                yield from self._compared(change)

    def _compared(self, change: CacheChange) -> Iterator[str]:
        assert self._paths is not None and change.shared is not None
        due = Counter(self._nodes(list(range(len(self._paths))), 0, 0))
        recorded = Counter((first, stop, refs) for _, first, stop, refs in change.shared.tolist())
        if recorded != due:
            first, stop, refs = min((recorded - due) or (due - recorded))
            where = f"positions {first} to {stop - 1}, read by {refs} texts"
            yield f"its cache says that texts share {where}, " + "and by their origins they do not" if recorded - due else (
                f"its cache does not say that texts share {where}, and by their origins they do"
            )
        saved = sum((refs - 1) * (stop - first) for first, stop, refs in recorded.elements())
        if self._entry is not None and change.shared_bytes != saved * self._entry:
            yield f"its cache says that sharing saves {change.shared_bytes} bytes, and its nodes give {saved * self._entry}"

    def _nodes(self, texts: list[int], at: int, begins: int) -> Iterator[Node]:
        """The nodes of texts whose first `at` entries behind the prompt are the same; begins: position of the first node."""
        assert self._paths is not None
        length, stop = len(self._paths[texts[0]]), at
        while stop < length and len({self._paths[text][stop] for text in texts}) == 1:
            stop += 1
        if self._first + stop > begins:
            yield begins, self._first + stop, len(texts)
        if stop < length:
            apart: dict[Entry, list[int]] = defaultdict(list)
            for text in texts:
                apart[self._paths[text][stop]].append(text)
            for some in apart.values():
                yield from self._nodes(some, stop, self._first + stop)
