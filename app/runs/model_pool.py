"""Model pool: the models that the page offers, and those that are loaded."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.core.roles import TARGET

from .memory import MemoryEstimate, bytes_per_number, cache_bytes, format_count, free_memory
from .threads import measure_passes

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.decoding.shared.thread_count import ThreadCount
    from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
    from decodescope.engine.session.load import Model

Holds = Callable[[str, "ModelSpec", int], int]
MOST_OFFERED = 200  # models in a list
# role -> its name on a page
TITLES = {
    TARGET: "Model",
    "draft": "Draft model",
    "draft2": "Second draft model",
    "draft3": "Third draft model",
    "infill": "Gap-filling model",
    "amateur": "Amateur",
    "short": "Short-context model",
}


@dataclass(frozen=True)
class Offer:
    """A model that can be chosen. key: what the page sends, and `load` takes;  source: shipped, folder or hub; folder: its
    files, or its GGUF file"""

    key: str
    name: str
    source: str
    spec: ModelSpec
    size: int
    folder: Path

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from decodescope.engine.model.checkpoint.gguf.source import derived_folder
        from decodescope.engine.model.checkpoint.tokenizer import Tokenizer

        return Tokenizer.from_folder(derived_folder(self.folder) if self.folder.is_file() else self.folder)

    @cached_property
    def trouble(self) -> str:
        """Why its tokenizer cannot be read, as a sentence; empty if it can."""
        from decodescope.engine.model.checkpoint.folder import LoadError

        try:
            self.tokenizer  # noqa: B018 # it is read by being asked for
        except LoadError as error:
            return explain_error(error)
        return ""

    @property
    def stop_tokens(self) -> list[int]:
        """Ids that end a text, ascending."""
        return self.tokenizer.stop_ids

    @property
    def label(self) -> str:
        """Name, size, types of a GGUF file and source, as a list shows them."""
        types = f", stored as {self.spec.stored_as}" if self.spec.stored_as else ""
        source = "" if self.source == "shipped" else f" ({self.source})"
        return f"{self.name}, {format_count(self.spec.params).strip()}{types}{source}"


class ModelHolder(Protocol):
    """An owner of models in a pool. It is asked before a model is unloaded, and notified when it is."""

    def keys_in_use(self) -> set[str]:
        """The keys of the models that must stay loaded."""
        ...

    def release_model(self, key: str) -> None:
        """Release the model of that key: it has left the pool."""
        ...


class ModelPool:
    """The models behind the page: offered, loading, loaded.
    Every run names its models by role; they are loaded when its turn comes.

    target, draft: names or folders of those that a page begins with, `further`: of more, by role; `load` reads them in the
    background
    more: a folder with subfolders that are offered too
    holder: another owner of the pool's models; None: nobody
    threads: owner of the number of threads, once a model is loaded; None: torch alone
    """

    def __init__(
        self,
        target: str,
        draft: str | None,
        more: Path | None = None,
        further: Mapping[str, str] | None = None,
        holder: ModelHolder | None = None,
    ):
        self.names = {TARGET: target, **({"draft": draft} if draft else {}), **(further or {})}
        self.more = more
        self.holder = holder
        # key -> a loaded model, the most recently wanted one at the end
        self.present: OrderedDict[str, Model] = OrderedDict()
        self.trouble = ""  # why the initial models could not be loaded
        self._phase, self._since = "", time.monotonic()
        self._loading: threading.Thread | None = None
        self._bringing = threading.Lock()
        self._offered: dict[str, Offer] = {}  # by key, as of the last request
        self._remembered: set[str] = (
            set()
        )  # folders and files of recorded runs' models that are not offered otherwise
        self._rewritten: dict[str, Offer] = {}  # the same for models that are to be made from them
        self.threads: ThreadCount | None = None
        self._threading: Callable[[], ThreadCount] | None = None

    def loaded_models(self, names: Mapping[str, str] | None = None) -> dict[str, Model]:
        """Role -> loaded model of these (role -> key), or of those that a page begins with."""
        names = self.names if names is None else names
        return {role: model for role, key in names.items() if (model := self.present.get(key)) is not None}

    def acquire(self, names: Mapping[str, str]) -> dict[str, Model] | None:
        """Role -> model of these (role -> key) for a run; None if some are not loaded."""
        models = self.loaded_models(names)
        if len(models) < len(names):
            return None
        for key in names.values():
            self.present.move_to_end(key)
        return models

    def put(self, **models: Model) -> None:
        """Take models that are loaded already, by their roles on a new page."""
        self.present |= {self.names[role]: model for role, model in models.items()}

    def choose_threads(self, number: int | None) -> None:
        """Let passes run in so many threads; None: the number that is fastest by timing when a model is loaded."""

        def threading() -> ThreadCount:
            from decodescope.engine.decoding.shared.thread_count import ThreadCount

            return ThreadCount(number)

        self._threading = threading

    def load(self) -> None:
        """Begin to load the initial models, in the background."""
        self._loading = threading.Thread(target=self._load, name="decodescope-load", daemon=True)
        self._loading.start()

    def _load(self) -> None:
        try:
            self.ensure_loaded(self.names)
        except Exception as error:  # whatever it is, the page reports it
            self.trouble = explain_error(error)

    def ensure_loaded(self, names: Mapping[str, str]) -> dict[str, Model]:
        """These models (role -> key), loaded if they are not loaded yet. Raises RequestRefusal and LoadError.
        If there is no room for them, models that no run needs are unloaded first."""
        with self._bringing:
            try:
                self._phase, self._since = "starting the engine", time.monotonic()
                from decodescope.engine.session.load import load
                from decodescope.engine.session.remembered import remember_models

                self._make_room(names)
                for role, key in names.items():
                    if key not in self.present:
                        offer = self.offer(key)
                        called = Path(key).name if offer is None else offer.name
                        self._phase = f"loading the {role_title(role).lower()} {called}"
                        same = next((x for x in self.present.values() if key in (x.name, x.reference)), None)
                        model = same or load(key)
                        model.name = model.name if offer is None else offer.name
                        self.present[key] = model
                    self.present.move_to_end(key)
                self._phase = "measuring this machine"
                if self._threading is not None:
                    self.threads = self.threads or self._threading()
                    self.threads.choose(self.present[names[TARGET]].decoder)
                _measure_machine(self.present[names[TARGET]])
                measure_passes(*(self.present[key] for key in dict.fromkeys(names.values())))
                remember_models(self.present[key] for key in names.values())
                return self.loaded_models(names)
            finally:
                self._phase = ""

    def close(self) -> None:
        """Wait for the background loading."""
        if self._loading is not None:
            self._loading.join(15)  # cut off inside a library's import, it would end the process with a fault

    @property
    def phase(self) -> str:
        """The present phase of loading models; empty while nothing is loaded."""
        return self._phase

    def state(self, names: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The state of these models (role -> key), or of those that a page begins with.
        It has phase and seconds while some are being loaded; then name and size of each, whether it is loaded, and remarks
        on its files."""
        names = names or self.names
        loaded = self.loaded_models(names)
        state: dict[str, Any] = {"ready": len(loaded) == len(names), "error": self.trouble}
        if self._phase:
            state |= {"phase": self._phase, "seconds": round(time.monotonic() - self._since, 1)}
        rows: list[dict[str, Any]] = []
        for role, key in names.items():
            model, offer = loaded.get(role), self.offer(key)
            if model is not None:
                rows.append(
                    {
                        **_row(role, model.name, model.spec, _weight_bytes(model), True),
                        "remarks": model.remarks,
                    }
                )
            elif offer is not None:
                rows.append(
                    {**_row(role, offer.name, offer.spec, offer.size, False), "trouble": offer.trouble}
                )
        return state | {"models": rows}

    # ---- choosing others

    def offers(self) -> list[Offer]:
        """The models that can be chosen: shipped, in the configured folder, in the hub's cache; each followed by its adapters.
        Only configs and headers of GGUF files are read."""
        from decodescope.engine.session.load import shipped_models as shipped

        offered = [
            _make_offer(x["name"], x["name"], "shipped", Path(x["path"]), x["adapter"]) for x in shipped()
        ]
        if self.more is not None and self.more.is_dir():
            root = self.more.resolve()
            # no link that leads out
            inside = [x for x in sorted(self.more.iterdir()) if x.resolve().is_relative_to(root)]
            offered += _make_offers(((str(x.resolve()), x.name, x) for x in inside), "folder")
            offered += _gguf_offers(_gguf_paths([self.more, *inside], root), "folder")
        snapshots = _hub_snapshots()
        offered += _make_offers(((str(x), name, x) for name, x in snapshots), "hub")
        offered += _gguf_offers(_gguf_paths(x for _, x in snapshots), "hub")
        offered += _remembered_offers(self._remembered)
        before = self._offered  # an unchanged offer keeps its tokenizer
        offers = [before[x.key] if before.get(x.key) == x else x for x in offered if x is not None][
            :MOST_OFFERED
        ]
        self._offered = {x.key: x for x in offers}
        return offers

    def offer(self, key: str) -> Offer | None:
        """The offer of that key, if there is one; a model to be made from an offered one is offered too."""
        if key not in self._offered and key not in self._rewritten:
            self.offers()
            if (one := self._transformed_offer(key)) is not None:
                self._rewritten[key] = one
        return self._offered.get(key) or self._rewritten.get(key)

    def _transformed_offer(self, key: str) -> Offer | None:
        """The offer of a model made from another by transforms. Its bytes are unknown: the other's count is used."""
        from decodescope.engine.decoding.bases.weights import format_transform_list, parse_transform_list

        base, text = without_weights(key)
        if len(self._rewritten) >= MOST_OFFERED:
            self._rewritten.clear()
        offer = self._offered.get(str(base))
        try:
            text = format_transform_list(parse_transform_list(text))
        except ParamError:
            return None
        if offer is None or not text:
            return None
        name = str(with_weights(offer.name, text))
        return replace(offer, key=key, name=name, spec=replace(offer.spec, name=name, weights=text))

    def key(self, name: str) -> str | None:
        """The key of a model, from its key or its name; None: there is no such model here."""
        if name in self.present or name in self.names.values() or self.offer(name) is not None:
            return name
        known: dict[str, Model | Offer] = {**self._offered, **self.present}
        return next((key for key, x in known.items() if x.name == name), None)

    def remembered_key(self, fingerprint: Any) -> str | None:
        """The key of the model of this fingerprint, if a recorded run read it from a folder here that is still there.
        It is offered from then on."""
        from decodescope.engine.model.checkpoint.adapter import split_reference
        from decodescope.engine.session.remembered import remembered_model

        place = remembered_model(fingerprint)
        if place is None:
            return None
        if self.offer(place) is None:
            self._remembered.add(str(split_reference(without_weights(place)[0])[0]))
        return place if self.offer(place) is not None else None

    def reader(self, key: str) -> Model | Offer | None:
        """The known information on the model of that key, loaded or not; None: nothing."""
        return self.present.get(key) or self.offer(key)

    def trouble_of(self, key: str) -> str:
        """Why the tokenizer of that key's model cannot be read, as a sentence.
        Empty if it can be read, or if nothing is known of the model."""
        offer = None if key in self.present else self.offer(key)
        return "" if offer is None else offer.trouble

    def nearest_key(self, name: str) -> str | None:
        """The same for a record from another machine, where a folder of that name may be elsewhere."""
        return self.key(name) or self.key(name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])

    def readers(self, names: Mapping[str, str]) -> dict[str, Model | Offer]:
        """Role -> the known information on each of these models (role -> key), loaded or not.
        A model without any known information is left out. Raises RequestRefusal for a model that is not offered."""
        readers: dict[str, Model | Offer] = {}
        for role, key in names.items():
            reader = self.reader(key)
            if reader is not None:
                readers[role] = reader
            elif key not in self.names.values():  # a model of the command line may need a download
                raise RequestRefusal(_no_offer(key))
        return readers

    def estimate(self, names: Mapping[str, str], tokens: int, held: Holds | None = None) -> MemoryEstimate:
        """Memory for these models (role -> key) and the caches of a run of `tokens` tokens.
        held: number of entries for (role, shape, bytes of a number), None: all tokens, up to the context. Loaded models
        count as taken, those of others too."""
        holds: Holds = held or (lambda role, spec, itemsize: min(tokens, spec.max_positions))
        weights = {}
        there = 0
        cache = 0
        # a model with two roles has one copy of its weights, and a cache for each role
        counted: set[str] = set()
        for role, key in names.items():
            model = self.present.get(key)
            offer = self.offer(key)
            again = key in counted
            counted.add(key)
            if model is not None:
                there += 0 if again else _weight_bytes(model)
                each = model.decoder.dtype.itemsize
                cache += cache_bytes(model.spec, holds(role, model.spec, each), each)
            elif offer is not None:
                weights[offer.name] = offer.size
                cache += cache_bytes(
                    offer.spec, holds(role, offer.spec, bytes_per_number()), bytes_per_number()
                )
        return MemoryEstimate(weights, there, cache, tokens, free_memory())

    def admit(self, names: Mapping[str, str], wanted: MemoryEstimate | None = None) -> None:
        """Raise RequestRefusal if some of these models (role -> key) must be loaded but there is no room for `wanted`.
        This assumes that the models that no run needs are unloaded. None: no cache is wanted."""
        if len(self.loaded_models(names)) == len(names):
            return
        wanted = wanted or self.estimate(names, 0)
        spare = sum(_weight_bytes(x) for x in self._spare_models(names).values())
        if not wanted.fits_beside(spare):
            called = " and ".join(dict.fromkeys(x.name for x in self.readers(names).values()))
            raise RequestRefusal(
                f"{called} would take {wanted.parts}, and {format_count((wanted.free or 0) + spare)}B are free: "
                "choose a smaller "
                f"model{', or fewer new tokens' if wanted.tokens else ''}."
            )

    def _spare_models(self, names: Mapping[str, str]) -> dict[str, Model]:
        """The models that could be unloaded to make room for these."""
        needed = {*names.values(), *(() if self.holder is None else self.holder.keys_in_use())}
        return {key: model for key, model in self.present.items() if key not in needed}

    def _make_room(self, names: Mapping[str, str]) -> None:
        """Unload models, the least recently wanted one first, until these fit. Raises RequestRefusal if they cannot."""
        self.admit(names)
        for key in self._spare_models(names):
            if self.estimate(names, 0).fits:
                return
            self.present.pop(key)
            if self.holder is not None:
                self.holder.release_model(key)
            gc.collect()
            _release_memory()


def _no_offer(key: str) -> str:
    """Why there is no model with that key."""
    from decodescope.engine.decoding.bases.weights import parse_transform_list

    try:
        parse_transform_list(without_weights(key)[1])
    except ParamError as error:
        return f"The weights cannot be made so: {error}"
    return f"The model {key[:200]!r} is not offered here: choose one of the list."


def role_title(role: str) -> str:
    """The page's name for the model in this role."""
    return TITLES.get(role, f"{role.replace('_', ' ').capitalize()} model")


def _row(role: str, name: str, spec: ModelSpec, size: int, loaded: bool) -> dict[str, Any]:
    """The page's description of a model; size: bytes of its weights."""
    shape = {"params": spec.params, "context": spec.max_positions}
    return {"role": role, "name": name, **shape, "bytes": size, "loaded": loaded}


def _release_memory() -> None:
    """Return memory that nothing holds any more to the device."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _measure_machine(model: Model) -> None:
    """Measure the machine for the roofline, if it was not measured before; it takes some seconds, once."""
    from decodescope.engine.timing.measure import profile_here

    with contextlib.suppress(Exception):  # a run works without it; its view says that no roof is known
        profile_here(model.decoder.dtype, model.decoder.device)


def _make_offers(listed: Iterable[tuple[str, str, Path]], source: str) -> list[Offer | None]:
    """The offers of these models (key, name, folder), each alone and with each of its adapters."""
    from decodescope.engine.model.checkpoint.adapter import adapter_names, join_reference

    return [
        _make_offer(join_reference(key, adapter), join_reference(name, adapter), source, folder, adapter)
        for key, name, folder in listed
        for adapter in ("", *adapter_names(folder))
    ]


def _make_offer(key: str, name: str, source: str, folder: Path, adapter: str = "") -> Offer | None:
    """An offer, or nothing if there is no model that we can load."""
    from decodescope.engine.session.load import describe

    try:
        if not any(folder.glob("*.safetensors")):
            return None
        if (
            source == "hub" and not (folder / "tokenizer.json").is_file()
        ):  # for the user's own folder the page reports it
            return None
        spec = describe(folder, name, None, adapter)
    except (ValueError, OSError):
        return None
    return Offer(key, name, source, spec, spec.params * bytes_per_number(), folder)


def _remembered_offers(places: Iterable[str]) -> list[Offer | None]:
    """The offers of these folders and GGUF files."""
    from decodescope.engine.model.checkpoint.gguf.source import find_gguf

    offers = list[Offer | None]()
    for path in map(Path, sorted(places)):
        with contextlib.suppress(ValueError, OSError):  # it is gone, or holds several models by now
            file = find_gguf(path)
            listed = [(str(path), path.name, path)]
            offers += _make_offers(listed, "folder") if file is None else _gguf_offers([file], "folder")
    return offers


def _gguf_paths(folders: Iterable[Path], root: Path | None = None) -> Iterator[Path]:
    """The GGUF models in these folders; of a link that leads out of `root` none."""
    from decodescope.engine.model.checkpoint.gguf.source import models_among

    for folder in folders:
        names = [x.name for x in folder.iterdir() if x.is_file()] if folder.is_dir() else []
        paths = [folder.absolute() / x for x in models_among(names)]
        yield from (x for x in paths if root is None or x.resolve().is_relative_to(root))


def _gguf_offers(paths: Iterable[Path], source: str) -> list[Offer | None]:
    """The offers of the models in these GGUF files, by their headers."""
    from decodescope.engine.model.checkpoint.gguf.header import model_name
    from decodescope.engine.session.load import describe, gguf_bytes

    offers = list[Offer | None]()
    for path in paths:
        try:
            spec = describe(path, model_name(path))
            offers.append(Offer(str(path), spec.name, source, spec, gguf_bytes(path, spec), path))
        except (ValueError, OSError):
            continue
    return offers


def _hub_snapshots() -> list[tuple[str, Path]]:
    """Hub models with files on this machine, by id: the newest snapshot of each."""
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


def _weight_bytes(model: Model) -> int:
    """Bytes of a loaded model's weights."""
    return model.spec.weight_bytes(model.decoder.dtype.itemsize)
