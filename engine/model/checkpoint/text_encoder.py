"""Text encoder: a tokenizer.json of others is tried before it is used, and its long or doubtful texts are encoded in a helper
process. What no helper process has to do is done here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from decodescope.engine.sandbox.answers import hash_texts, read_answer, store_answer
from decodescope.engine.sandbox.helper import HelperFailure, JobLimits, run_job

from .folder import LoadError
from .tokenizer_bounds import has_bounded_work

PROGRAM = Path(__file__).with_name("run_tokenizer.py")
KIND = "tokenizer"
RULES = "1"  # of a trial; another number makes all answers void
LONG_TEXT = 16 << 10  # bytes of a text that is encoded in a helper process, whatever the trial said
TRIAL_SECONDS = 10.0  # of processor time, and
SECONDS_A_MIB = 5.0  # more for each MiB of the file
TEXT_SECONDS = 10.0  # of processor time for a text in a helper process, and
SECONDS_A_KIB = 0.1  # more for each KiB of it
WAIT_SECONDS = 600.0  # for either, on a busy machine
MEMORY_BYTES = 512 << 20
FILE_COPIES = 24  # bytes of memory for a byte of the file
TEXT_COPIES = 1024  # bytes of memory for a byte of the text
WAY_OUT = "choose another model, or one whose tokenizer.json is its makers'"
# of the shipped models' files, which are not tried
SHIPPED_FILES = frozenset(
    {
        "6ab41948bbaf2d3e0b1b75d2a04fee1c55167b3da1c7be5ef8a1139c407c885d",
        "6e78a7a0fa431c600167f0f7b8a50405dea664df6f0cdd8636653c2cf4a24411",
        "ba17215ab3e39ecb204a1962b1d457e5d91802d3d12a4b1eb5e891d228813f08",
        "d50512eaeb09cb796534df6e349987791078db34e1da402de050e027df0850ae",
    }
)


class EncodedText(NamedTuple):
    """A text in tokens.

    ids: the tokens;  offsets: where each begins and ends in the text; none if nobody asked for them
    """

    ids: list[int]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class TokenizerTrial:
    """What is known of a tokenizer.json.

    where: its path, for refusals;  trusted: it is ours, or was made here;  bounded: any text of it bounds the work
    """

    where: str = "tokenizer.json"
    trusted: bool = True
    bounded: bool = True

    @classmethod
    def of_file(cls, path: Path, spec: str, table: dict[str, Any]) -> TokenizerTrial:
        """Try the file if nobody has. spec: its text with what other files of the folder add. Raises LoadError if it is
        refused."""
        mark = hash_texts(spec)
        if mark in SHIPPED_FILES:
            return cls(str(path))
        key = hash_texts(RULES, tokenizers.__version__, mark)
        answer = read_answer(KIND, key)
        if answer is None:
            answer, lasting = _try_tokenizer(path, spec, table)
            if lasting:
                store_answer(KIND, key, answer)
        if why := answer.get("refused"):
            raise LoadError(f"{path} is refused: {why}; {WAY_OUT}.")
        return cls(str(path), False, bool(answer.get("bounded")))

    def is_encoded_here(self, text: str) -> bool:
        """Whether a text is encoded in this process."""
        return (
            self.trusted
            or (self.bounded and len(text) * 4 <= LONG_TEXT)
            or (self.bounded and len(text.encode("utf-8", "replace")) <= LONG_TEXT)
        )


def _try_tokenizer(path: Path, spec: str, table: dict[str, Any]) -> tuple[dict[str, str | bool], bool]:
    """The answer of a trial, and whether it holds from now on."""
    size = len(spec)
    limits = JobLimits(
        TRIAL_SECONDS + SECONDS_A_MIB * size / (1 << 20), MEMORY_BYTES + FILE_COPIES * size, WAIT_SECONDS
    )
    try:
        tried = run_job(PROGRAM, {"try": spec}, limits)
    except HelperFailure as failure:
        if not failure.lasting:
            raise LoadError(f"{path} could not be tried: {failure}; try again.") from None
        return {"refused": f"in a trial {failure}"}, True
    if "damaged" in tried:  # the library says here what is wrong
        return {}, False
    if tried["refused"]:
        return {"refused": f"in a trial {tried['refused']}"}, True
    return {"refused": "", "bounded": has_bounded_work(table)}, True


class TextEncoder:
    """One reading of a tokenizer.json: special tokens in a text are text, or are found."""

    def __init__(self, spec: str, trial: TokenizerTrial, marks_are_text: bool = False):
        self._spec = spec
        self._trial = trial
        self._marks_are_text = marks_are_text

    @cached_property
    def native(self) -> tokenizers.Tokenizer:
        """The library's tokenizer, which neither pads nor cuts."""
        tokenizer = tokenizers.Tokenizer.from_str(self._spec)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = self._marks_are_text
        return tokenizer

    @cached_property
    def _key(self) -> str:
        return hash_texts(self._spec)

    def encode(self, text: str, offsets: bool = False) -> EncodedText:
        """`text` in tokens, with nothing around them. Raises LoadError if the tokenizer gives up or takes too much."""
        if not self._trial.is_encoded_here(text):
            return self._encode_apart(text, offsets)
        try:
            encoding = self.native.encode(text, add_special_tokens=False)
        except BaseException as error:
            if not is_panic(error):
                raise
            raise self._refusal(str(error)[:80]) from None
        return EncodedText(encoding.ids, encoding.offsets if offsets else [])

    def _encode_apart(self, text: str, offsets: bool) -> EncodedText:
        """The same in a helper process."""
        job = {"key": self._key, "marks_are_text": self._marks_are_text, "text": text, "offsets": offsets}
        size = len(text.encode("utf-8", "replace"))
        limits = JobLimits(
            TEXT_SECONDS + SECONDS_A_KIB * size / 1024,
            MEMORY_BYTES + FILE_COPIES * len(self._spec) + TEXT_COPIES * size,
            WAIT_SECONDS,
        )
        try:
            done = run_job(PROGRAM, job, limits, more=lambda: {"spec": self._spec})
        except HelperFailure as failure:
            raise self._refusal(str(failure)) from None
        if why := done.get("failed"):
            raise self._refusal(why)
        return EncodedText(done["ids"], [(a, b) for a, b in done["offsets"]])

    def _refusal(self, why: str) -> LoadError:
        where = "" if self._trial.trusted else f" {self._trial.where}"
        return LoadError(f"The tokenizer{where} gave up on this text ({why}); use another text or model.")


def is_panic(error: BaseException) -> bool:
    """True if the tokenizers library panicked, as it does when a pattern backtracks without end. Such an error is not an
    Exception, so nothing catches it by chance; the library itself still works afterwards."""
    return type(error).__name__ == "PanicException"
