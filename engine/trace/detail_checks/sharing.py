"""Which entries the texts of a search have in common, followed by which of them went on from which."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod

from ..details.tree import TreeReading
from ..records.events import CacheChange, Header, Step
from ..values.limits import TEXTS
from .trees import declared_trees

Entry = tuple[int, int]  # the step that wrote it, and for which text of its batch
Node = tuple[int, int, int]  # first position, the one after the last, texts that read it


class SharingValidator:
    """The texts of a search as lists of the entries that they read after a prompt of `n` tokens; its last token enters with
    the first step. Each pass writes an entry for each of its texts; then text b goes on after text parents[b]."""

    def __init__(self, header: Header, n: int):
        self._header = header
        self._first = n - 1
        self._paths: list[list[Entry]] | None = None
        self._followed = True  # True if each entry of a text is known
        given = [header.model.get(key) for key in ("n_layers", "n_kv_heads", "head_dim")]
        sizes: list[int] = [x for x in given if type(x) is int]
        size = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}.get(header.dtype)
        self._entry = 2 * size * prod(sizes) if size and len(sizes) == len(given) else None

    def lose(self) -> None:
        """Stop following: the texts have read other entries."""
        self._paths, self._followed = None, False

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the record of this step, the next one, about the entries that its texts share. They are followed as
        long as each step records what is shared, and which text wrote it."""
        parents = self._parents(step)
        if parents is None or not self._followed:
            return
        recorded = [x for x in step.cache if x.lane == "target" and x.shared is not None]
        if self._paths is None:
            ran = [one.batch for one in step.passes if one.lane == "target"]
            self._paths = [[] for _ in range(ran[-1])] if ran and ran[-1] <= TEXTS else []
        count = len(self._paths)
        if not (
            recorded and count and len(parents) <= TEXTS and all(0 <= parent < count for parent in parents)
        ):
            self.lose()
            return
        paths = [[*path, (step.step, i)] for i, path in enumerate(self._paths)]
        self._paths = [paths[parent] for parent in parents] or paths
        for change in recorded:
            yield from self._check_shared(change)

    def _parents(self, step: Step) -> list[int] | None:
        """Of each text that goes on, the text of the pass that it went on from; None if the step follows no such texts."""
        for detail, form in declared_trees(self._header, step):
            if form.batch and detail.earlier:
                alive = TreeReading(detail, form, {}, ()).nodes_by_fate("open")
                return [detail.parents[node] for node in alive]
        return None

    def _check_shared(self, change: CacheChange) -> Iterator[str]:
        assert self._paths is not None and change.shared is not None
        due = Counter(self._nodes())
        recorded = Counter((first, stop, refs) for _, first, stop, refs in change.shared.tolist())
        if recorded != due:
            first, stop, refs = min((recorded - due) or (due - recorded))
            where = f"positions {first} to {stop - 1}, read by {refs} texts"
            yield (
                f"its cache says that texts share {where}, " + "and by their origins they do not"
                if recorded - due
                else (f"its cache does not say that texts share {where}, and by their origins they do")
            )
        saved = sum((refs - 1) * (stop - first) for first, stop, refs in recorded.elements())
        if self._entry is not None and change.shared_bytes != saved * self._entry:
            yield f"its cache says that sharing saves {change.shared_bytes} bytes, and its nodes give {saved * self._entry}"

    def _nodes(self) -> Iterator[Node]:
        """The nodes of all texts, from those that all read to those of one alone."""
        assert self._paths is not None
        length = len(self._paths[0])
        # texts, entries after the prompt that they share, where a node begins
        due = [(list(range(len(self._paths))), 0, 0)]
        while due:
            texts, stop, begins = due.pop()
            while len(texts) > 1 and stop < length and len({self._paths[text][stop] for text in texts}) == 1:
                stop += 1
            stop = length if len(texts) == 1 else stop
            if self._first + stop > begins:
                yield begins, self._first + stop, len(texts)
            if stop < length:
                apart: dict[Entry, list[int]] = defaultdict(list)
                for text in texts:
                    apart[self._paths[text][stop]].append(text)
                due += [(some, stop, self._first + stop) for some in apart.values()]
