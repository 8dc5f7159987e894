"""Grammar: only tokens that can still become a text of the grammar."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.sampler import Sampler, softmax
from decodescope.engine.decoding.shared.recogniser import DIALECTS, GrammarPath, Recogniser, compile_grammar
from decodescope.engine.decoding.values.alphabet import Alphabet
from decodescope.engine.trace.values.json_schema import find_violations

RUN = 16  # recorded tokens of a forced run


@component
class Grammar(Sampler):
    """Remove every token after which no text of the grammar can be completed.

    A stop token stays if the text so far is a complete text. So the text of a run, up to its stop token, is a text of the
    grammar. A text cut at its limit is the beginning of one.

    State: the path, that is the tokens written. The allowed next tokens are a function of the path alone, so each branch of a
    draft has its own. Verification is exact for this distribution, and a drafted token that the grammar refuses has probability
    0. A drafter that draws under the sampler drafts allowed tokens. llguidance makes the masks, once per path; the trace
    records the time.

    Tokens keep the model's weights, whatever can follow them. So this is not the model's distribution conditioned on texts of
    the grammar. Bytes of an incomplete character are allowed as long as they can still become a whole character. A regex is
    that of Rust (no look-around, no back-references), and a schema's JSON is spaced as Python writes it. Lark's notation is
    llguidance's: its lexer takes the longest terminal and never goes back. A few keywords of a schema are only nearly held, so
    each finished text is validated, and what it breaks is recorded.
    """

    title = "Grammar"
    source = "Geng et al. 2023, arXiv:2305.13971; guidance-ai/llguidance, docs/syntax.md"
    stateful = True
    constrains = True
    departs = "the grammar refuses tokens"
    reads_text = True
    tells: ClassVar[dict[str, Note]] = {
        "allowed": Note("series", "allowed", "tokens", "that may follow, by the grammar"),
        "forced": Note("series", "forced", "tokens", "that must follow, since each is the only one"),
        "refused": Note(
            "series", "refused", "", "probability that the model gave to tokens which do not fit"
        ),
        "mask_us": Note("clock", "masks", "µs", "time to make masks since the last step"),
    }

    definition: str = param(
        ".*",
        lines=True,
        most=20000,
        help="the grammar, written in the chosen dialect; the default allows one line of any text",
    )
    dialect: str = param(
        "regex",
        choices=DIALECTS,
        help="notation of the grammar: regular expression, JSON schema, or Lark rules",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.acceptance.keeps_law:
            return (
                f"{method.acceptance.name} may keep a token that the grammar refuses; choose the acceptance lossless, or leave "
                f"the sampler {self.name} out."
            )
        if method.guidance.cuts:
            return f"{method.guidance.name} removes tokens, and the grammar may leave none of the others: choose guidance own."
        try:
            compile_grammar(self.definition, self.dialect)
        except ParamError as error:
            return str(error)
        return None

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> GrammarPath:
        if alphabet is None:
            raise ParamError(
                "grammar needs the texts of ids, and this model has no tokenizer: leave the sampler out."
            )
        return Recogniser(self.definition, self.dialect, alphabet).root

    def warp(self, logits: Tensor, state: GrammarPath) -> Tensor:
        if not state.open:  # after the end, or after a refused token: nothing from here on is ever written
            return logits
        fits = state.recogniser.mask(state).to(logits.device)
        left = logits.masked_fill(~fits, -torch.inf)
        if (
            left.amax() == -torch.inf
        ):  # a draft model may give all allowed tokens probability 0: then they are equally likely
            return torch.zeros_like(logits).masked_fill_(~fits, -torch.inf)
        return left

    def update(self, state: GrammarPath, token: int, logits: Tensor) -> GrammarPath:
        return state.with_token(token)

    def find_violations(self, text: bytes) -> list[str]:
        return find_violations(self.definition, text) if self.dialect == "json" else []

    def logits_summary(self, logits: Tensor, state: GrammarPath) -> dict[str, Any] | None:
        if not state.open:
            return None
        fits = state.recogniser.mask(state).to(logits.device)
        return {"refused": min(1.0, float(softmax(logits.double()).masked_fill_(fits, 0.0).sum()))}

    def state_summary(self, state: GrammarPath) -> dict[str, Any] | None:
        recogniser, allowed = state.recogniser, int(state.recogniser.mask(state).sum()) if state.open else 0
        us, recogniser.us = recogniser.us, 0.0
        return {
            "allowed": allowed,
            "forced": len([*recogniser.forced_tokens(state, RUN)]),
            "mask_us": round(us, 1),
        }
