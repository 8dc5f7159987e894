"""Carry the training text to a machine without the Python packages it comes from.

    python -m decodescope.training.pack pack build/training/text.xz       here: code and documentation, at most 15 MiB
    python -m decodescope.training.pack unpack build/training/text.xz     there: add stories and tasks, which are made again

Only text that was collected is packed; what is made by rule is the same on every machine. A token takes 0.6 bytes: LZMA on
16-bit ids does better than on the text itself or on ids of 12 bits.
"""

from __future__ import annotations

import argparse
import io
import lzma
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from . import data

COLLECTED = ("code", "docs")
LIMIT = 15 * 2**20
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 64 << 20, "lc": 3, "lp": 1, "pb": 1}]

Texts = dict[tuple[str, str], data.CorpusText]


def cut(text: data.CorpusText, share: float) -> data.CorpusText:
    """About the first `share` of a text's tokens, whole documents."""
    count = max(1, int(np.searchsorted(text.ends, share * len(text.ids))))
    end = int(text.ends[min(count, len(text.ends)) - 1])
    return replace(
        text, ids=text.ids[:end], ends=text.ends[:count], size=round(text.size * end / len(text.ids))
    )


def pack(texts: Texts, limit: int = LIMIT) -> bytes:
    """The texts in at most `limit` bytes; of the training text as many documents as fit."""
    share = 1.0
    while True:
        some = {
            key: cut(text, share) if key[0] == "train" and share < 1 else text for key, text in texts.items()
        }
        arrays = io.BytesIO()
        data.write(some, arrays)
        packed = lzma.compress(arrays.getbuffer(), format=lzma.FORMAT_XZ, filters=FILTERS)
        if len(packed) <= limit or share < 0.01:
            break
        share *= 0.98 * limit / len(packed)
    if len(packed) > limit:
        raise ValueError(
            f"The held-out text alone takes {len(packed):,} bytes of {limit:,}: give a larger limit."
        )
    return packed


def unpack(packed: bytes) -> Texts:
    """What `pack` was given, but for documents that did not fit."""
    return data.read(io.BytesIO(lzma.decompress(packed)))


def main() -> None:
    """Pack or unpack."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("way", choices=["pack", "unpack"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--limit", type=float, default=LIMIT / 2**20, help="MiB of the packed file")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="times the generated megabytes of the corpus"
    )
    args = parser.parse_args()
    began = time.time()
    if args.way == "pack":
        texts = {
            (split, kind): text
            for split in ("train", "valid")
            for kind, text in data.load(split).items()
            if kind in COLLECTED
        }
        packed = pack(texts, int(args.limit * 2**20))
        args.file.write_bytes(packed)
        kept = sum(len(text.ids) for key, text in unpack(packed).items() if key[0] == "train")
        whole = sum(len(text.ids) for key, text in texts.items() if key[0] == "train")
        print(f"{args.file} {len(packed):,} bytes, {kept:,} of {whole:,} training tokens")
        return
    from . import corpus  # as it is there: without the packages it makes stories and tasks alone

    texts = unpack(args.file.read_bytes())
    documents, _ = corpus.build(args.scale, 0, True)
    data.BUILD.mkdir(parents=True, exist_ok=True)
    data.save(texts | data.encode_documents(documents))
    print(f"{data.TOKENS} written in {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
