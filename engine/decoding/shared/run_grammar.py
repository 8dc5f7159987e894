"""The program that tries a grammar, in a helper process: a grammar can be as deep or as ambiguous as its author likes, and
llguidance reads it before its own limits count. It imports nothing of ours."""

from __future__ import annotations

from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

LOADED = 2  # vocabularies that stay loaded

_loaded: dict[str, LLTokenizer] = {}


def parser_limits() -> LLParserLimits:
    """What llguidance itself may take for one mask. They are those that it has unless others are chosen: 50,000 items are about
    5 seconds at worst, 250,000 states about 500 MB."""
    return LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=250_000,
        max_grammar_size=500_000,
    )


class GrammarVocabulary:
    """Tokens as llguidance takes them. It asks for texts to be split only where a mark is named in a grammar."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes], stops: list[int], special: list[int]):
        self.tokens = tokens
        self.eos_token_id = min(stops)
        self.special_token_ids = special

    def __call__(self, text: bytes | str) -> list[int]:
        return []


def build_vocabulary(tokens: list[bytes], stops: list[int], special: list[int]) -> LLTokenizer:
    """The trie of all tokens. stops, special: ids, ascending"""
    made_of = TokenizerWrapper(GrammarVocabulary(tokens, stops, special))
    return LLTokenizer(made_of, n_vocab=len(tokens), eos_token=stops)


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """{"why": what is wrong with job["grammar"], or nothing}; with job["key"], with its first mask for that vocabulary, which
    must be sent as well where the answer is {"lacks": true}."""
    if "key" not in job:
        return {"why": LLMatcher.validate_grammar(job["grammar"], limits=parser_limits())}
    if job["key"] not in _loaded:
        if "tokens" not in job:
            return {"lacks": True}
        while len(_loaded) >= LOADED:
            del _loaded[next(iter(_loaded))]
        tokens = [x.encode("latin-1") for x in job["tokens"]]
        _loaded[job["key"]] = build_vocabulary(tokens, job["stops"], job["special"])
    matcher = LLMatcher(_loaded[job["key"]], job["grammar"], log_level=0, limits=parser_limits())
    matcher.compute_bitmask()
    return {"why": matcher.get_error() if matcher.is_error() else ""}
