"""Cut a large file into parts that travel where only small files do, and join them again.

    python -m decodescope.training.parts split assets/models/lab/model.safetensors OUT
    python -m decodescope.training.parts join OUT assets/models/lab/model.safetensors

`OUT` gets `model.safetensors.0`, `.1`, ... and `model.safetensors.parts.json` with the hash of the whole.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path

LIMIT = 15 * 2**20  # bytes of a part


def split(file: Path, folder: Path, limit: int = LIMIT) -> list[Path]:
    """Write the parts and the list of them; the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    whole, out = file.read_bytes(), []
    for i in range(max(1, -(-len(whole) // limit))):
        out.append(folder / f"{file.name}.{i}")
        out[-1].write_bytes(whole[i * limit : (i + 1) * limit])
    said = {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest(), "parts": [p.name for p in out]}
    listing = folder / f"{file.name}.parts.json"
    listing.write_text(json.dumps(said, indent=2) + "\n")
    return [*out, listing]


def join(folder: Path, file: Path) -> None:
    """Write `file` from its parts, in one move. ValueError names a part that is missing, or says that the hash differs."""
    listing = folder / f"{file.name}.parts.json"
    if not listing.exists():
        raise ValueError(
            f"There is no {listing}: give the folder that `split` wrote for a file called {file.name}."
        )
    said = json.loads(listing.read_text())
    if missing := [name for name in said["parts"] if not (folder / Path(name).name).exists()]:
        raise ValueError(
            f"Of {file.name} the parts {', '.join(missing)} are not in {folder}: fetch them and join again."
        )
    whole = b"".join((folder / Path(name).name).read_bytes() for name in said["parts"])
    if len(whole) != said["bytes"] or hashlib.sha256(whole).hexdigest() != said["sha256"]:
        raise ValueError(
            f"The parts of {file.name} in {folder} are not what was split: their hash differs. Fetch them again."
        )
    partial = file.with_name(f"{file.name}.partial")
    partial.write_bytes(whole)
    os.replace(partial, file)


def main() -> None:
    """Split or join."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    ways = parser.add_subparsers(dest="way", required=True)
    one = ways.add_parser("split", help="cut FILE into parts in FOLDER")
    one.add_argument("file", type=Path)
    one.add_argument("folder", type=Path)
    two = ways.add_parser("join", help="make FILE from its parts in FOLDER")
    two.add_argument("folder", type=Path)
    two.add_argument("file", type=Path)
    args = parser.parse_args()
    try:
        if args.way == "split":
            for path in split(args.file, args.folder):
                print(f"{path} {path.stat().st_size:,} bytes")
        else:
            join(args.folder, args.file)
            print(f"{args.file} {args.file.stat().st_size:,} bytes, hash as recorded")
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
