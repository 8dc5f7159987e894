"""Forest: tries over all windows of a text, one for each first token, with counts that decay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class TrieNode:
    """The end of a path of tokens.

    f_in: how often the path occurs in the prompt;  f_out: in the text, halved from time to time;  last: the last position of
    its token
    """

    f_in: int = 0
    f_out: float = 0.0
    last: int = -1
    children: dict[int, TrieNode] = field(default_factory=dict)

    def walk(self) -> Iterator[TrieNode]:
        """The node and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


class Forest:
    """All windows of up to `longest` tokens of a prompt and of the growing text behind it.

    - most: nodes with an f_out that a trie may have; when it has more, its counts are halved
    - roots: first token -> the root of its trie;  sizes: first token -> nodes of its trie with an f_out
    - dropped: nodes removed so far
    """

    def __init__(self, longest: int, most: int):
        self.longest, self.most = longest, most
        self.roots: dict[int, TrieNode] = {}
        self.sizes: dict[int, int] = {}
        self.dropped = 0
        self._open: list[
            tuple[int, TrieNode | None]
        ] = []  # windows that grow, oldest first: first token, last node
        self._read = 0

    def extend(self, tokens: Sequence[int], prompt: int) -> None:
        """Extend the forest to `tokens`, which must begin with the tokens entered so far.

        The first `prompt` tokens are the prompt; no window reaches from the prompt into the text. O(longest) per token.
        """
        for at in range(self._read, len(tokens)):
            if at == prompt:
                self._open.clear()
            self._enter(tokens[at], at, out=at >= prompt)
        self._read = len(tokens)

    def _enter(self, token: int, at: int, out: bool) -> None:
        """Extend every growing window by the token at `at`, and begin a new window with it."""
        grown: list[tuple[int, TrieNode | None]] = []
        for first, above in [*self._open, (token, TrieNode(children=self.roots))]:
            node = None if above is None else above.children.setdefault(token, TrieNode())
            if node is not None:
                if out and node.f_out == 0:
                    self.sizes[first] = self.sizes.get(first, 0) + 1
                node.f_in += not out
                node.f_out += out
                node.last = at
            grown.append((first, node))
        self._open = grown[-self.longest + 1 :] if self.longest > 1 else []
        for first in {first for first, _ in grown if self.sizes.get(first, 0) > self.most}:
            self._halve_counts(first)

    def _halve_counts(self, first: int) -> None:
        """Halve a trie's counts from the text, with 1 and less to 0, and drop the nodes without a count.

        Its windows end: a window that continued after the halving could lift a count above its parent's.
        """
        before = list(self.roots[first].walk())
        for node in before:
            node.f_out = node.f_out / 2 if node.f_out > 1 else 0.0
        for node in before:
            node.children = {token: x for token, x in node.children.items() if x.f_in or x.f_out}
        after = list(self.roots[first].walk())  # the root itself stays
        self.dropped += len(before) - len(after)
        self.sizes[first] = sum(node.f_out > 0 for node in after)
        self._open = [(x, None if x == first else node) for x, node in self._open]

    def find(self, path: Sequence[int]) -> TrieNode | None:
        """The node at the end of a path; None if no window begins so."""
        node: TrieNode | None = TrieNode(children=self.roots)
        for token in path:
            node = None if node is None else node.children.get(token)
        return node
