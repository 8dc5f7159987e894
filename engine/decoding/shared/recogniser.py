"""Recogniser: which tokens may follow a text so that a text of a grammar can still be made of it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.sandbox.answers import hash_texts, read_answer, store_answer
from decodescope.engine.sandbox.helper import HelperFailure, JobLimits, run_job
from decodescope.engine.trace.values.json_schema import find_schema_fault

from ..values.alphabet import Alphabet

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

DIALECTS = ("regex", "json", "lark")
# how JSON is spaced: as Python writes it, since blanks at will are blanks without end; a schema's own "x-guidance" goes first
SPACED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# every token that fits is allowed, also where the next characters are certain: else the longest alone would be
WHOLE = '%llguidance {"no_forcing": true}\n'
KEPT = 256  # paths that keep their matchers
REASON = 120  # characters of the parser's message
PROGRAM = Path(__file__).with_name("run_grammar.py")
KIND = "grammar"
LIMITS = JobLimits(20.0, 2 << 30)  # of a trial
WAY_OUT = "write a shorter one, or one that repeats less"


class GrammarPath:
    """A text, token by token from the beginning. There is one object for each text, so equal paths are identical.

    open: True if the grammar still decides here; False after a stop token, and after one that it does not allow
    mask: bool [V], the tokens that may follow, once it was requested
    """

    def __init__(
        self, recogniser: Recogniser, before: GrammarPath | None = None, token: int = -1, open: bool = True
    ):
        self.recogniser = recogniser
        self.before = before
        self.token = token
        self.open = open
        self.length: int = 0 if before is None else before.length + 1
        self.mask: Tensor | None = None
        self._after: dict[int, GrammarPath] = {}

    def __deepcopy__(self, memo: object) -> GrammarPath:
        return self

    def with_token(self, token: int) -> GrammarPath:
        """The path of the same text followed by `token`."""
        if token not in self._after:
            fits = (
                self.open and token not in self.recogniser.stops and bool(self.recogniser.mask(self)[token])
            )
            self._after[token] = GrammarPath(self.recogniser, self, token, fits)
        return self._after[token]


class Recogniser:
    """Matchers of llguidance, one for each path, copied from that of the path before, and the masks that they gave. Equal masks
    are one tensor, and each path is asked about once; matchers stay for the last KEPT paths. Two threads may ask.

    us: microseconds that masks took since they were last reported
    """

    def __init__(self, text: str, dialect: str, alphabet: Alphabet):
        """Raises ParamError for a grammar that cannot be read, or that no text of this alphabet obeys."""
        if not alphabet.stops:
            raise ParamError(
                "a grammar ends its text with a stop token, and this run has none: let it end at its end token."
            )
        self.stops = alphabet.stops
        self.vocab = alphabet.vocab
        self.us = 0.0
        self._grammar = compile_grammar(text, dialect)
        # ids without a text
        bare = {i for i, piece in enumerate(alphabet.pieces) if piece == b"<#%d>" % i}
        special = frozenset({*alphabet.marks, *alphabet.stops, *bare})
        pieces = tuple(alphabet.pieces)
        _try_first_mask(self._grammar, pieces, alphabet.stops, special)
        self._tokenizer = _build_tokenizer(pieces, alphabet.stops, special)
        self._lock = threading.Lock()
        self._masks: dict[bytes, Tensor] = {}
        self._matchers: dict[GrammarPath, Any] = {}
        self.root = GrammarPath(self)
        try:
            self.mask(self.root)
        except EngineFault as fault:
            raise ParamError(str(fault)) from None

    def __deepcopy__(self, memo: object) -> Recogniser:
        return self

    def mask(self, path: GrammarPath) -> Tensor:
        """bool [V]: the tokens that may follow an open `path`; a stop token where the text is one of the grammar's. Raises
        EngineFault where none may, or where the grammar is too complex."""
        if path.mask is None:
            with self._lock:
                began = time.perf_counter()
                matcher = self._matcher(path)
                bits = matcher.compute_bitmask()
                if matcher.is_error() or not any(bits):
                    why = matcher.get_error().partition("\n")[0][:REASON]
                    raise EngineFault("bad_input", _explain_dead_end(why, path.length))
                if bits not in self._masks:
                    flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[: self.vocab]
                    self._masks[bits] = torch.from_numpy(flags.astype(bool))
                path.mask = self._masks[bits]
                self.us += (time.perf_counter() - began) * 1e6
        return path.mask

    def forced_tokens(self, path: GrammarPath, most: int) -> Iterator[int]:
        """The tokens that must follow because no others may, at most `most`; without the one that ends the text."""
        for _ in range(most if path.open else 0):
            ids = self.mask(path).nonzero()[:, 0]
            if len(ids) != 1 or int(ids[0]) in self.stops:
                return
            yield int(ids[0])
            path = path.with_token(int(ids[0]))

    def _matcher(self, path: GrammarPath) -> LLMatcher:
        """The matcher after a path. Matchers never go back: one that did might still hold the mask of its old place."""
        way, here = list[int](), path
        while here not in self._matchers and here.before is not None:
            way.append(here.token)
            here = here.before
        from llguidance import LLMatcher

        from .run_grammar import parser_limits

        known = self._matchers.get(here)
        matcher = (
            LLMatcher(self._tokenizer, self._grammar, log_level=0, limits=parser_limits())
            if known is None
            else known.deep_copy()
        )
        fits = matcher.consume_tokens(way[::-1])
        assert fits or not way, "every token of an open path was in the mask before it"
        self._matchers[path] = matcher
        if len(self._matchers) > KEPT:
            del self._matchers[next(iter(self._matchers))]
        return matcher


@lru_cache(maxsize=32)
def compile_grammar(text: str, dialect: str) -> str:
    """The grammar as llguidance takes it. Raises ParamError for one that cannot be read."""
    from llguidance import LLMatcher, regex_to_lark

    if dialect == "json":
        schema = _read_schema(text)
        options = {**SPACED, **schema.get("x-guidance", {})}
        body = f"start: %json {json.dumps({**schema, 'x-guidance': options})}"
    else:
        body = f"start: /{regex_to_lark(text, '')}/" if dialect == "regex" else text
    grammar = LLMatcher.grammar_from_lark(body if "%llguidance" in body else WHOLE + body)
    if why := _try_grammar(grammar):
        lines = [x.strip() for x in why.splitlines() if x.strip()]
        reason = next((x.removeprefix("error: ") for x in lines if x.startswith("error: ")), lines[0])[
            :REASON
        ]
        if dialect == "json" and (unheld := _explain_unheld(" ".join(lines))):
            raise ParamError(unheld)
        ways = {
            "regex": "without look-around and back-references",
            "json": "a JSON schema",
            "lark": "with a rule `start`",
        }
        raise ParamError(
            f"grammar.definition cannot be read as {dialect} ({reason.rstrip('.')}): write it {ways[dialect]}."
        )
    return grammar


def _read_schema(text: str) -> dict[str, Any]:
    """A schema as an object. Raises ParamError for a text that is no JSON, or no schema."""
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ParamError(
            f'grammar.definition is no JSON ({why}): write a schema such as {{"type": "object"}}.'
        ) from None
    if fault := find_schema_fault(text):
        raise ParamError(f"grammar.definition is no JSON schema: {fault}: correct it.")
    schema = schema if isinstance(schema, dict) else {"allOf": [schema]}
    if not isinstance(schema.get("x-guidance", {}), dict):
        raise ParamError(
            'grammar.definition has an "x-guidance" that is no object: write one, or leave it out.'
        )
    return dict[str, Any](schema)


# keyword that no grammar holds -> what to write instead
CASES = "write the cases out with anyOf"
INSTEAD = {
    "not": "list what is allowed, with enum, pattern or anyOf",
    **dict.fromkeys(("if", "then", "else"), CASES),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), CASES),
    "oneOf": "write anyOf, or cases of which no two can hold at once",
    "uniqueItems": "leave it out, or list the arrays with enum",
    **dict.fromkeys(("contains", "minContains", "maxContains"), "say with prefixItems where the item is"),
    "propertyNames": 'use patternProperties with "additionalProperties": false',
    "unevaluatedProperties": "list all properties in one place, with additionalProperties",
    "unevaluatedItems": "list all items in one place, with prefixItems and items",
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor"), "use $ref and $defs"),
}
FORMATS = "date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid and uri"
# what llguidance says of a schema that it does not take -> the keyword, and what to do
UNHELD = {
    r"Unknown format: (?P<value>\S+)": ("format", f"use a pattern, or one of {FORMATS}"),
    r"oneOf constraints are not supported": ("oneOf", INSTEAD["oneOf"]),
    r"patternProperty regexes .* are not disjoint": (
        "patternProperties",
        "write patterns that no key can match twice",
    ),
    r"min/maxProperties only supported": (
        "minProperties or maxProperties",
        "require all listed properties, or leave it out",
    ),
    r"Value for 'multipleOf' has too many digits": ("multipleOf", "write a step with fewer digits"),
    r"Resource '(?P<value>[^']*)' is not present": (
        "$ref",
        "put what it refers to into $defs; nothing is fetched",
    ),
}


def _explain_unheld(reason: str) -> str:
    """The keyword of a valid schema that masks cannot hold exactly, and the way out; empty: it is something else."""
    if unknown := re.search(r"Unimplemented keys: \[(.*?)\]", reason):
        keys = re.findall(r'"([^"]+)"', unknown[1])
        ways = list(dict.fromkeys(INSTEAD.get(key, "leave it out") for key in keys))
        names = ", ".join(f'"{key}"' for key in keys)
        return f"grammar.definition has {names}, which no grammar holds exactly: {'; '.join(ways)}."
    for pattern, (keyword, way) in UNHELD.items():
        if match := re.search(pattern, reason):
            value = "".join(f" {x}" for x in match.groupdict().values())
            return f"grammar.definition has {keyword}{value}, which no grammar holds exactly: {way}."
    if empty := re.search(r"Unsatisfiable schema: ([^{}]*?)(?= at |\d+ \| |$)", reason):
        why = empty[1].strip()[:REASON]
        return f"grammar.definition is a schema that no text satisfies ({why}): relax it."
    return ""


def _try_grammar(grammar: str) -> str:
    """What llguidance finds wrong with a grammar; nothing if it can be read. Raises ParamError for one that takes too much."""
    key = hash_texts(_version(), grammar)
    return _trial_answer(key, {"grammar": grammar}, dict)


def _try_first_mask(
    grammar: str, tokens: tuple[bytes, ...], stops: frozenset[int], special: frozenset[int]
) -> None:
    """Make the first mask of a grammar in a helper process. Raises ParamError for one that takes too much, or has none."""
    vocabulary = _hash_vocabulary(tokens, stops, special)

    def more() -> dict[str, Any]:
        texts = [x.decode("latin-1") for x in tokens]
        return {"tokens": texts, "stops": sorted(stops), "special": sorted(special)}

    why = _trial_answer(
        hash_texts(_version(), grammar, vocabulary), {"grammar": grammar, "key": vocabulary}, more
    )
    if why:
        raise ParamError(_explain_dead_end(why.partition("\n")[0][:REASON], 0))


def _trial_answer(key: str, job: dict[str, Any], more: Callable[[], dict[str, Any]]) -> str:
    """What is wrong with a grammar, from the answers of trials or from a new one. more: what a helper may lack"""
    answer = read_answer(KIND, key)
    if answer is None:
        try:
            answer = {"why": run_job(PROGRAM, job, LIMITS, more=more)["why"][:4000]}
        except HelperFailure as failure:
            answer = {"refused": str(failure)}
            if not failure.lasting:
                raise ParamError(f"grammar.definition could not be tried: {failure}; try again.") from None
        store_answer(KIND, key, answer)
    if why := answer.get("refused"):
        raise ParamError(f"grammar.definition takes too much, in a trial {why}: {WAY_OUT}.")
    return str(answer.get("why", ""))


@lru_cache(maxsize=1)
def _version() -> str:
    from importlib.metadata import version

    return version("llguidance")


@lru_cache(maxsize=2)
def _hash_vocabulary(tokens: tuple[bytes, ...], stops: frozenset[int], special: frozenset[int]) -> str:
    return hash_texts(*(x.decode("latin-1") for x in tokens), json.dumps([sorted(stops), sorted(special)]))


@lru_cache(maxsize=2)
def _build_tokenizer(
    tokens: tuple[bytes, ...], stops: frozenset[int], special: frozenset[int]
) -> LLTokenizer:
    """The trie of all tokens, one for all runs of a model."""
    from .run_grammar import build_vocabulary

    return build_vocabulary([*tokens], sorted(stops), sorted(special))


def _explain_dead_end(why: str, length: int) -> str:
    """Why no token may follow, as a sentence."""
    if "TooComplex" in why or "limit" in why:
        return f"The grammar became too complex behind {length} tokens ({why}): shorten it."
    where = f"behind {length} tokens of the text" if length else "at its beginning"
    return f"No token of this model goes on as the grammar demands {where}: write it with characters that its tokens have."
