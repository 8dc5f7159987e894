"""Shelf: the models that the page offers, and those that are loaded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.refusal import Refused, told
from decodescope.engine.core.roles import TARGET

from .memory import Estimate, bytes_each, cache_bytes, free, short

if TYPE_CHECKING:
    from decodescope.engine.checkpoint.tokenizer import Tokenizer
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.load import Model

MOST_OFFERED = 200  # models in a list
TITLES = {"draft": "Draft model", "draft2": "Second draft model", "draft3": "Third draft model"}  # role -> what a page says


@dataclass(frozen=True)
class Offer:
    """A model that can be chosen. key: what the page sends, and `load` takes;  source: shipped, folder or hub; folder: its
    files."""

    key: str
    name: str
    source: str
    spec: ModelSpec
    size: int
    folder: Path

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What splits its text."""
        from decodescope.engine.checkpoint.tokenizer import Tokenizer

        return Tokenizer.from_folder(self.folder)

    @property
    def label(self) -> str:
        """Name and size, and where it comes from, as a list shows them."""
        return f"{self.name}, {short(self.spec.params).strip()}" + ("" if self.source == "shipped" else f" ({self.source})")


class Shelf:
    """The models behind the page: offered, loading, loaded.

    target, draft: names or folders of the first ones, `further`: of more, by role; `load` reads them in the background
    more: a folder whose subfolders are offered too
    """

    def __init__(self, target: str, draft: str | None, more: Path | None = None, further: Mapping[str, str] | None = None):
        self.names = {TARGET: target, **({"draft": draft} if draft else {}), **(further or {})}
        self.more = more
        self.models: dict[str, Model] = {}
        self.trouble = ""
        self._phase, self._since = "", time.monotonic()
        self._ready = threading.Event()
        self._loading: threading.Thread | None = None
        self._choosing = threading.Lock()
        self._titles: dict[str, str] = {}  # key -> what a model is called, where its folder says less
        self._offered: dict[str, Offer] = {}  # by key, as they were when somebody asked last

    def load(self, names: dict[str, str] | None = None) -> None:
        """Begin to read the models, in the background: role -> name. The present ones stay until all are there."""
        work = (names or self.names,)
        self._loading = threading.Thread(target=self._load, args=work, name="decodescope-load", daemon=True)
        self._loading.start()

    def put(self, **models: Model) -> Any:
        """Take models that are loaded already."""
        self.models = dict(models)
        self._ready.set()
        return self

    def _load(self, names: dict[str, str]) -> None:
        try:
            self._phase, self._since = "starting the engine", time.monotonic()
            from decodescope.engine.load import load

            models: dict[str, Model] = {}
            for role, name in names.items():
                there = [*self.models.values(), *models.values()]
                same = next((x for x in there if name in (x.name, str(x.path))), None)
                self._phase, self._since = f"loading {role} {Path(name).name}", time.monotonic()
                models[role] = same or load(name)
                models[role].name = self._titles.get(name, models[role].name)
            self._phase, self._since = "measuring this machine", time.monotonic()
            _measure(models[TARGET])
            self.models, self.names = models, names
        except Exception as error:  # whatever it is, the page says it
            self.trouble = told(error)
        finally:
            self._phase = ""
            self._ready.set()

    def state(self) -> dict[str, Any]:
        """What of the models is there: phase and seconds while loading, then their shapes."""
        state: dict[str, Any] = {"ready": bool(self.models) and self._ready.is_set(), "error": self.trouble}
        if self._phase:
            state |= {"phase": self._phase, "seconds": round(time.monotonic() - self._since, 1)}
        state["models"] = [
            {
                "role": role,
                "name": model.name,
                "params": model.spec.params,
                "context": model.spec.max_positions,
                "bytes": _held(model),
            }
            for role, model in self.models.items()
        ]
        return state

    # ---- choosing others

    def offers(self) -> list[Offer]:
        """The models that can be chosen: shipped, in the configured folder, in the hub's cache. Only configs are read."""
        from decodescope.engine.load import models as shipped

        offered = [_offer(x["name"], x["name"], "shipped", Path(x["path"])) for x in shipped()]
        if self.more is not None and self.more.is_dir():
            root = self.more.resolve()
            inside = [x for x in sorted(self.more.iterdir()) if x.resolve().is_relative_to(root)]  # no link that leads out
            offered += [_offer(str(x.resolve()), x.name, "folder", x) for x in inside]
        offered += [_offer(str(x), name, "hub", x) for name, x in _cached()]
        offers = [x for x in offered if x is not None][:MOST_OFFERED]
        self._offered = {x.key: x for x in offers}
        return offers

    def estimate(self, names: Mapping[str, str], tokens: int) -> Estimate:
        """What these models (role -> key) and the caches of a run of `tokens` tokens will take. The present models stay
        until others are there, so their memory does not count as free."""
        if not self._offered:
            self.offers()
        present = {key: model for model in self.models.values() for key in (model.name, str(model.path))}
        weights, held, cache = {}, 0, 0
        counted: set[str] = set()  # a model that plays two roles has one copy of its weights, and a cache for each
        for role, name in names.items():
            model = self.models.get(role) if self.names.get(role) == name else present.get(name)
            offer, again = self._offered.get(name), name in counted
            counted.add(name)
            if model is not None:
                held += 0 if again else _held(model)
                cache += cache_bytes(model.spec, tokens, model.decoder.dtype.itemsize)
            elif offer is not None:
                weights[offer.name] = offer.size
                cache += cache_bytes(offer.spec, tokens, bytes_each())
        return Estimate(weights, held, cache, tokens, free())

    def choose(self, names: Mapping[str, str], tokens: int = 0) -> None:
        """Load these in the place of the present ones: role -> key, the target among them; an empty key leaves the role out.
        Raises Refused in one sentence if that cannot be, also where there is no room for the caches of a run of `tokens`
        tokens, and MethodError for models that do not go together."""
        from decodescope.engine.pairing import same_tokens

        offers = {x.key: x for x in self.offers()}
        names = {role: name for role, name in names.items() if name or role == TARGET}
        for name in names.values():
            if name not in offers:
                raise Refused(f"The model {name[:200]!r} is not offered here: choose one of the list.")
        with self._choosing:
            if self._phase:
                raise Refused("A model is being loaded: choose another one when it is there.")
            wanted = self.estimate(names, tokens)
            if not wanted.fits:
                raise Refused(
                    f"{' and '.join(offers[x].name for x in dict.fromkeys(names.values()))} would take {wanted.parts}, and "
                    f"{short(wanted.free or 0)}B are free: choose a smaller model{', or fewer new tokens' if tokens else ''}."
                )
            same_tokens({role: offers[name] for role, name in names.items()})
            self._titles = {x.key: x.name for x in offers.values()}
            self.trouble, self._phase = "", "waiting"
            self._ready.clear()
            self.load(names)


def title(role: str) -> str:
    """What a page calls the model in this role."""
    return TITLES.get(role, f"{role.replace('_', ' ').capitalize()} model")


def _measure(model: Model) -> None:
    """Measure the machine for the roofline, if that was not done before: some seconds, once."""
    from decodescope.engine.timing.measure import profile_here

    with contextlib.suppress(Exception):  # a run goes without; its view says that no roof is known
        profile_here(model.decoder.dtype, model.decoder.device)


def _offer(key: str, name: str, source: str, folder: Path) -> Offer | None:
    """An offer, or nothing where there is no model that we can load."""
    from decodescope.engine.load import describe

    try:
        if not any(folder.glob("*.safetensors")) or not (folder / "tokenizer.json").is_file():
            return None
        spec = describe(folder, name)
    except (ValueError, OSError):
        return None
    return Offer(key, name, source, spec, spec.params * bytes_each(), folder)


def _cached() -> list[tuple[str, Path]]:
    """Hub models whose files lie on this machine, by id: the newest snapshot of each."""
    try:
        from huggingface_hub.constants import HF_HUB_CACHE

        repositories = []
        for folder in sorted(Path(HF_HUB_CACHE).glob("models--*")):
            snapshots = sorted((folder / "snapshots").glob("*"), key=lambda x: x.stat().st_mtime)
            if snapshots:
                repositories.append((folder.name.removeprefix("models--").replace("--", "/"), snapshots[-1]))
        return repositories
    except (ImportError, OSError):
        return []


def _held(model: Model) -> int:
    """Bytes of a loaded model's weights."""
    return int(model.spec.params * model.decoder.dtype.itemsize)
