"""REST: draft with what followed the same words in a large body of text, found by a suffix array."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.datastore import HELP, LARGEST, load_datastore
from ..shared.union import frequent_prefixes

HITS = 5000  # places that are counted
SHOWN = 8  # places that the trace names


@component
class Rest(Drafter):
    """Retrieval-based speculative decoding. Take the longest suffix of the text, of `longest` down to `shortest` tokens,
    that stands in the datastore; at up to 5000 places where it stands take the next `length` tokens; count every prefix of
    these; draft the `nodes` most frequent ones. A prefix is at least as frequent as what it begins, so they are a tree.

    The datastore is any text file, cut into the model's tokens and sorted into a suffix array when a run first asks for
    it, then kept in memory; without a file it is `assets/datastore.txt`, 240 KB of stories, talks and tasks made by rule, the
    beginning of what the shipped models were trained on: little, and foreign to other models' texts. For a model without
    a tokenizer the file holds token ids with blanks between them, and without a file nothing is drafted.
    Costs no pass of any model. Chosen without chance: lossless under any sampler. Prefixes of the same count are taken
    shorter first, then in the order of their ids. Of more than 5000 places an even share is counted, where the order of a
    suffix array would prefer small ids; where nothing is found the target goes on alone.
    """

    title = "REST"
    source = "He et al. 2024, arXiv:2311.08252, section 3; FasterDecoding/REST, DraftRetriever/src/lib.rs"
    tells: ClassVar[dict[str, Note]] = {
        "suffix": Note(
            "series",
            "suffix",
            "tokens",
            "length of the text's end that is in the datastore",
            line="max_suffix",
        ),
        "hits": Note("series", "hits", "places", "where it stands"),
        "offsets": Note("set", "places", "position", "the first of them, in the order of the suffix array"),
        "counts": Note("node", "count", "places", "that begin with the path to the node"),
    }

    datastore: str = param("", file=True, most=LARGEST, help=HELP)
    depth: int = param(
        10, low=1, high=32, unit="tokens", help="length of the continuation copied from each match"
    )
    nodes: int = param(64, low=1, high=256, unit="nodes", help="maximum size of the draft tree")
    max_suffix: int = param(
        16, low=1, high=32, unit="tokens", help="longest suffix of the text to search for"
    )
    min_suffix: int = param(
        2, low=1, high=32, unit="tokens", help="shortest suffix of the text to search for"
    )

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.min_suffix > self.max_suffix:
            return f"rest.min_suffix = {self.min_suffix}: must not be above rest.max_suffix, which is {self.max_suffix}."
        return None

    def begin(self, ctx: Context) -> None:
        self._store = load_datastore(self.datastore, ctx.encode, ctx.target.decoder.vocab)

    def propose(self, ctx: Context) -> Draft:
        length = min(self.depth, ctx.room)
        n, low, high = self._store.find_longest(ctx.tokens, self.max_suffix, self.min_suffix)
        if n == 0 or length == 0:
            return Draft()
        rows = (
            low + np.arange(high - low)
            if high - low <= HITS
            else np.linspace(low, high - 1, HITS).astype(np.int64)
        )
        places = self._store.order[rows]
        tokens, parents, counts = frequent_prefixes(self._store.windows(places, n, length), self.nodes)
        notes = {"suffix": n, "hits": high - low, "offsets": places[:SHOWN].tolist(), "counts": counts}
        return Draft(tokens, parents, source="datastore", notes=notes)
