"""CoT-Influx: of worked examples the useful ones are read, and of these the useful tokens, as two policies learnt."""

from __future__ import annotations

from typing import cast

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression, UnreadPrompt
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.cot_influx import ShotPolicies
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.relevance import center_embeddings
from decodescope.engine.trace.records.events import Cut
from decodescope.engine.trace.records.prompt_cut import shorten

from .shared.shots import find_shots
from .shared.units import PromptText, tokens_to_read


@component
class CoTInflux(PromptCompression):
    """A prompt that shows how it is done: worked examples with blank lines between them, and the one that asks behind. A first
    policy says of each example the chance that it stays, by its embeddings [t, d] and those of the paragraph that asks; a
    second one the same of each token of an example. Examples with a chance of at least one half are taken, the surest first,
    each with its tokens of at least one half, until `rate` of the tokens that may go are read; of the last one the surest
    tokens as far as there is room. The rest of the examples goes as a whole.

    The policies were trained together by REINFORCE: the reward is the log-probability that the target gives the right answer
    behind what stays, less a price on tokens beyond a budget. They read embeddings alone, so nothing is run before the
    target reads: it costs some (2 d + 4 r) r products a token. Without blank lines there is no example, and all is read.

    Beside the paper: its policies read a frozen BERT's embeddings, ours the target's own; it has no public code, and the form
    of its reward is recalled. There a batch of examples is drawn anew from thousands, here those that the prompt holds are
    judged.
    """

    title = "CoT-Influx"
    source = "Huang et al. 2023, arXiv:2312.08901 (its abstract; the rest recalled)"

    keep_rate: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the tokens",
        help="maximum share of the removable prompt that the target reads",
    )
    keep_instruction: bool = param(
        False, help="always keep the first paragraph, as an instruction and not an example"
    )
    whole_examples: bool = param(False, help="keep all tokens of an example that stays")

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason("cot_influx", spec, "the context llmlingua")

    def cut(self, reading: UnreadPrompt) -> Cut | None:
        text = PromptText(reading)
        shown = find_shots(text, self.keep_instruction)
        if not shown.spans:
            return None
        head = cast(ShotPolicies, reading.decoder.heads["cot_influx"])
        e = center_embeddings(
            reading.decoder.embed_rows(Feed.causal_chain(reading.tokens, 0, reading.decoder.device))[0]
        )
        by_shot, by_token = head.chances(e, e[shown.first :], shown.spans)
        scores, out = np.ones(text.n, np.float32), ~shown.stays
        room = tokens_to_read(shown.stays, 1 - self.keep_rate) - int(shown.stays.sum())
        due = 0
        for i in sorted(range(len(shown.spans)), key=lambda i: -float(by_shot[i])):
            a, b = shown.spans[i]
            scores[a:b] = float(by_shot[i])
            if by_shot[i] < 0.5 or due >= room:
                continue
            out[a:b] = False
            scores[a:b] = 1.0 if self.whole_examples else by_token[i].cpu().numpy()
            due += int((scores[a:b] >= 0.5).sum())
        due = int(shown.stays.sum()) + min(due, room)
        return None if due == text.n else shorten(scores, shown.stays, due, out=out)
