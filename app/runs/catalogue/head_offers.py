"""Head offers: the folders of draft heads that the page offers, by name: nobody but the lab's owner says which there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from decodescope.app.basis.refusal import RequestRefusal

MOST = 200  # folders in a list
# what was made of a line of a folder's reading
USED = "used"
UNUSED = "unused"
REFUSED = "refused"


class OfferedModel(Protocol):
    """A model of the page's list. folder: its files, or its GGUF file"""

    @property
    def name(self) -> str:
        """Its name in the list."""
        ...

    @property
    def folder(self) -> Path:
        """Where it lies."""
        ...


class OfferedModels(Protocol):
    """The models that the page offers. more: a folder with further ones"""

    more: Path | None

    def offers(self) -> Sequence[OfferedModel]:
        """All of them."""
        ...


@dataclass(frozen=True)
class HeadOffer:
    """A folder of draft heads. key: what the page sends;  width: of the target that it was made for, None: not said"""

    key: str
    kind: str
    folder: Path
    width: int | None = None


def offered_heads(pool: OfferedModels) -> list[HeadOffer]:
    """The draft heads of the offered models, those that were trained on this machine, and those in the folder of further
    models. Only configs are read."""
    from decodescope.engine.model.checkpoint.folder import LoadError, read_json
    from decodescope.engine.model.heads.describe import head_kind

    offers: dict[Path, HeadOffer] = {}
    for key, folder in _head_folders(pool):
        if folder in offers or len(offers) >= MOST:
            continue
        try:
            kind, config = head_kind(folder), read_json(folder, "config.json") or {}
        except (LoadError, OSError):
            continue
        shape = config.get("shape")
        width = shape.get("d") if isinstance(shape, dict) else config.get("hidden_size")
        offers[folder] = HeadOffer(key, kind, folder, width if type(width) is int else None)
    return list(offers.values())


def _head_folders(pool: OfferedModels) -> Iterator[tuple[str, Path]]:
    """Key and folder of all that may hold heads, once for each model."""
    from decodescope.engine.model.heads.describe import is_head_folder
    from decodescope.engine.training.records import default_folder

    models = {x.folder.resolve(): x.name.partition("+")[0] for x in pool.offers() if x.folder.is_dir()}
    for folder, name in models.items():
        for head in _folders_in(folder / "heads", folder):
            yield f"{name}/{head.name}", head
    for head in _folders_in(default_folder()):
        yield trained_key(head), head
    if pool.more is not None:
        for head in _folders_in(pool.more):
            if is_head_folder(head):
                yield head.name, head


def trained_key(folder: Path) -> str:
    """The key of the head in the folder of a training on this machine."""
    return f"trained/{folder.name}"


def _folders_in(folder: Path, root: Path | None = None) -> list[Path]:
    """The folders in a folder, by name, without links that lead out of `root`, or of the folder itself."""
    root = (root or folder).resolve()
    try:
        inside = [x.resolve() for x in sorted(folder.iterdir())]
    except OSError:
        return []
    return [x for x in inside if x.is_relative_to(root) and (x / "config.json").is_file()]


def name_folders(words: str, heads: Iterable[HeadOffer]) -> str:
    """A sentence with the keys of heads in the place of their paths, which are the owner's."""
    for x in heads:
        words = words.replace(str(x.folder), x.key)
    return words


def read_head_folder(pool: OfferedModels, key: str) -> dict[str, Any]:
    """What was read of an offered folder of heads, by the function behind `decodescope models show`: facts, the lines of its
    config with what was made of each, by group, and remarks. Raises RequestRefusal for a folder that is not offered.

    groups: used, unused with the reason, refused; a folder that cannot be read has one line, the sentence of the refusal
    """
    from decodescope.engine.model.checkpoint.folder import LoadError
    from decodescope.engine.model.heads.describe import describe_heads

    offer = next((x for x in offered_heads(pool) if x.key == key), None)
    if offer is None:
        raise RequestRefusal(f"The heads {key[:80]!r} are not offered here: choose some of the list.")
    groups: dict[str, list[dict[str, str]]] = {USED: [], UNUSED: [], REFUSED: []}
    try:
        facts = describe_heads(offer.folder)
    except LoadError as error:
        why = name_folders(str(error), [offer])
        groups[REFUSED].append({"key": offer.key, "value": "", "use": why})
        return {"key": key, "facts": [["kind", offer.kind]], "groups": groups, "remarks": []}
    for row in facts.pop("keys"):
        group = USED if row["use"] == "used" else UNUSED
        groups[group].append({"key": row["key"], "value": _short_value(row["value"]), "use": row["use"]})
    remarks = [name_folders(x, [offer]) for x in facts.pop("remarks")]
    facts.pop("path")
    shown = [[name.replace("_", " "), _fact_words(value)] for name, value in facts.items()]
    return {"key": key, "facts": shown, "groups": groups, "remarks": remarks}


def _short_value(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _fact_words(value: Any) -> str:
    """A fact in words."""
    if isinstance(value, dict):
        return ", ".join(f"{x} {y}" for x, y in value.items())
    if isinstance(value, list):
        return ", ".join("all" if x is None else str(x) for x in value)
    return "unknown" if value is None else str(value)
