"""CoT-Influx: two trained policies choose the useful worked examples, and the useful tokens of these."""

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

from .shared.shots import find_shots
from .shared.units import PromptText, tokens_to_read


@component
class CoTInflux(PromptCompression):
    """Select the useful worked examples of a few-shot prompt, and the useful tokens in them.

    The prompt holds worked examples with blank lines between them, and the question last. A first policy gives each example a
    probability to stay, from its embeddings [t, d] and those of the question paragraph. A second policy does the same for each
    token of an example. Examples with a probability of at least one half are taken, the most probable first, each with its
    tokens of at least one half. This continues until `keep_rate` of the removable tokens are read. The last example gives its
    most probable tokens as far as there is room. All other examples are removed.

    The policies were trained together by REINFORCE. The reward is the log-probability that the target gives the right answer
    behind the remaining prompt, minus a price on tokens beyond a budget. They read embeddings alone, so no model runs before
    the target reads. The cost is about (2 d + 4 r) r products per token. Without blank lines there is no example, and all is
    read.

    Differences from the paper: its policies read a frozen BERT's embeddings; these read the target's own. It has no public
    code, and the form of its reward is recalled. In the paper a new batch of examples is drawn from thousands each time; here
    the policies judge the examples in the prompt.
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
        return missing_reason("cot_influx", spec, "the prompt_compression llmlingua")

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
        return None if due == text.n else text.shorten_by_character(scores, shown.stays, due, out=out)
