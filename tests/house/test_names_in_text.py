"""Names in docstrings and comments: code that is in backticks, and errors that are raised, exist in the project."""

from __future__ import annotations

import builtins
import keyword
import re
from pathlib import Path

from source import files

NAME = re.compile(r"[A-Za-z_]\w*")
QUOTED = re.compile(r"`([^`]+)`")
ERRORS = re.compile(r"\bRaises? (_?[A-Z]\w+(?:(?:, and |, | or | and )_?[A-Z]\w+)*)")
# what is read and not run: docstrings (and other strings in three quotes), comments
TEXT = {
    ".py": re.compile(r'"""[\s\S]*?"""|(?:^|\s)#\s.*$', re.M),
    ".js": re.compile(r"/\*[\s\S]*?\*/|^\s*//.*$", re.M),
}
CODE = (".py", ".js", ".css", ".toml", ".yml")
# names that no line of our code has, each with its owner
FOREIGN = {
    "beam_logprobs_sum": "diverse beam search, the authors' code",
    "expansion_ratio": "Block Transformer, the authors' configuration",
    "block_main_b4_": "Block Transformer, the authors' files",
    "random_pad_first_block": "Block Transformer, the authors' option",
    "generate_candidates": "Medusa, the authors' code",
    "infill_prompt": "JumpCoder, the authors' option",
    "speculative_infill": "JumpCoder, the authors' option",
    "repetetion_penalty_accum_loss": "DITTO, the authors' file",
    "ae0fb9df92df3434": "a fingerprint of weights",
    "best_at": "made from the word of a mark, such as best",
}


def test_the_names_in_docstrings_and_comments_exist() -> None:
    """A name that was renamed in the code is renamed in every text, too."""
    known, quoted = {*dir(builtins), *keyword.kwlist, "and", "or"}, {}
    for path in files():
        known.update(part for name in path.parts for part in name.split("."))
        if path.suffix not in CODE or path.name == Path(__file__).name:
            continue
        source = path.read_text(encoding="utf-8")
        if (pattern := TEXT.get(path.suffix)) is not None:
            for text in pattern.findall(source):
                if "`" in text or "Raise" in text:
                    for found in (*QUOTED.findall(text), *ERRORS.findall(text)):
                        quoted.update(dict.fromkeys(NAME.findall(found), path.name))
            source = pattern.sub("", source)
        known.update(NAME.findall(source))
    stale = {name: place for name, place in quoted.items() if name not in known}
    assert not {name: place for name, place in stale.items() if name not in FOREIGN}
    assert set(FOREIGN) <= set(stale), "the guard: every exception is needed"
