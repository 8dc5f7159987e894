"""Model pool: the models that the page offers, and those that are loaded."""

from __future__ import annotations

import contextlib
import gc
import re
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
from decodescope.engine.core.progress import Progress, report_progress
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.core.roles import TARGET
from decodescope.engine.model.fetched.catalogue import find_fetchable

from .memory import MemoryEstimate, cache_bytes, format_count, free_memory, number_bytes
from .model_downloads import missing_model
from .placed_key import USUAL, Placement, check_placement, join_key, split_key, usual_device
from .threads import measure_passes

if TYPE_CHECKING:
    from decodescope.engine.core.component import Component
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
    """A model that can be chosen. key: what the page sends, and `load` takes;  source: fetched, shipped, folder, hub or "named"
    on the command line;  size: bytes of its weights in the type and on the device of `place`;  folder: its files, or its GGUF
    file"""

    key: str
    name: str
    source: str
    spec: ModelSpec
    size: int
    folder: Path
    place: Placement = USUAL

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
        source = "" if self.source in ("shipped", "fetched", "named") else f" ({self.source})"
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
        self._detail, self._share = "", 0.0  # how far the phase is, in words and as a share of it
        self._loading: threading.Thread | None = None
        self._bringing = threading.Lock()
        self._offered: dict[str, Offer] = {}  # by key, as of the last request
        self._remembered: set[str] = (
            set()
        )  # folders and files of recorded runs' models that are not offered otherwise
        self._rewritten: dict[str, Offer] = {}  # the same for models that are to be made from them
        self.threads: ThreadCount | None = None
        self._threading: Callable[[], ThreadCount] | None = None
        self._usual = USUAL

    def choose_placement(self, place: Placement) -> None:
        """Let the type and the device of `place` be those of all models for which nobody chooses others."""
        self._usual = place

    def usual_placement(self, key: str) -> Placement:
        """The type and device of the model of that key, which names none, if nobody chooses.
        The type is empty for a model that is known only once it is loaded."""
        offer = self._offered.get(str(without_weights(key)[0]))
        return Placement(
            self._usual.dtype or ("" if offer is None else offer.place.dtype),
            self._usual.device or usual_device(),
        )

    def placement(self, key: str) -> Placement:
        """The type and device of the model of that key: those that it is loaded in, else those that it will be."""
        if (model := self.present.get(key)) is not None:
            return placement_of(model)
        base, named = split_key(key)
        self.offer(base)
        return named if all(named) else self.usual_placement(base)

    def placed(self, name: str, place: Placement) -> str:
        """The key of the model `name`, a key, in the type and on the device of `place`; what is empty there stays as the key
        has it, else as usual. Raises RequestRefusal for a type or device that is not here."""
        base, named = split_key(name)
        place = check_placement(Placement(place.dtype or named.dtype, place.device or named.device))
        if not any(place):
            return base
        now = self.placement(base)
        wanted = Placement(place.dtype or now.dtype, place.device or now.device)
        return base if wanted == now else join_key(base, wanted)

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
        with self._bringing, report_progress(self._note_progress):
            try:
                self._since = time.monotonic()
                self._begin_phase("starting the engine")
                from decodescope.engine.session.load import load
                from decodescope.engine.session.remembered import remember_models

                self._make_room(names)
                for role, key in names.items():
                    if key not in self.present:
                        offer, (base, place) = self.offer(key), split_key(key)
                        called = Path(base).name if offer is None else offer.name
                        words = self.placement(key).words
                        self._begin_phase(f"loading the {role_title(role).lower()} {called} as {words}")
                        place = place if all(place) else self._usual
                        model = self._find_same(base, key) or load(
                            base, place.dtype or None, place.device or None
                        )
                        model.name = model.name if offer is None else offer.name
                        self.present[key] = model
                    self.present.move_to_end(key)
                self._begin_phase("measuring this machine")
                if self._threading is not None:
                    self.threads = self.threads or self._threading()
                    self.threads.choose(self.present[names[TARGET]].decoder)
                _measure_machine(self.present[names[TARGET]])
                measure_passes(*(self.present[key] for key in dict.fromkeys(names.values())))
                remember_models(self.present[key] for key in names.values())
                return self.loaded_models(names)
            finally:
                self._begin_phase("")

    def _begin_phase(self, words: str) -> None:
        """Say that this is done now; nothing, if it is empty."""
        self._phase = words
        self._detail, self._share = "", 0.0

    def _note_progress(self, progress: Progress) -> None:
        """Note how far the work of the present phase is."""
        if progress.total:
            own = "" if progress.phase.startswith("loading") else f"{progress.phase}, "
            self._detail = f"{own}{progress.done:.0f} of {progress.total:.0f} {progress.unit}"
            self._share = min(1.0, progress.done / progress.total)

    def _find_same(self, base: str, key: str) -> Model | None:
        """The model of that key, if it is loaded under another one; base: the key without type and device."""
        place = self.placement(key)
        same = (x for x in self.present.values() if base in (x.name, x.reference))
        return next((x for x in same if placement_of(x) == place), None)

    def close(self) -> None:
        """Wait for the background loading."""
        if self._loading is not None:
            self._loading.join(15)  # cut off inside a library's import, it would end the process with a fault

    @property
    def phase(self) -> str:
        """The present phase of loading models and how far it is; empty while nothing is loaded."""
        return ": ".join(filter(None, (self._phase, self._detail)))

    def state(self, names: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The state of these models (role -> key), or of those that a page begins with.
        It has phase, share of it and seconds while some are being loaded; then name, size, type, device and speed of each,
        whether it is loaded, and remarks on its files; and the names of the models that make room for them."""
        names = names or self.names
        loaded = self.loaded_models(names)
        state: dict[str, Any] = {"ready": len(loaded) == len(names), "error": self.trouble}
        if self._phase:
            seconds = round(time.monotonic() - self._since, 1)
            state |= {"phase": self.phase, "share": round(self._share, 2), "seconds": seconds}
        rows: list[dict[str, Any]] = []
        for role, key in names.items():
            model, offer = loaded.get(role), self.offer(key)
            if model is not None:
                row = _row(role, model, placement_of(model), _weight_bytes(model)) | {
                    "remarks": model.remarks
                }
                speed = self._speed(key, model.path, model.spec)
            elif offer is not None:
                row = _row(role, offer, offer.place, offer.size) | {"trouble": offer.trouble}
                speed = self._speed(key, offer.folder, offer.spec)
            else:
                continue
            rows.append(row | {"loaded": model is not None, "speed": speed})
        return state | {"models": rows, "unloads": self._unloaded_for(names)}

    def _speed(self, key: str, source: Path, spec: ModelSpec) -> int | None:
        """Tokens per second of plain decoding with the model of that key, as the cost model has it; None: unknown.
        source: its files;  spec: its shape"""
        import torch

        from decodescope.engine.session.placement import DTYPES, most_tokens_per_second

        place = self.placement(key)
        if not source:  # of a model that was made in memory
            return None
        try:
            speed = most_tokens_per_second(source, spec, DTYPES[place.dtype], torch.device(place.device))
        except (ValueError, OSError):  # its file is gone, which loading reports
            return None
        return None if speed is None else round(speed)

    # ---- choosing others

    def offers(self) -> list[Offer]:
        """The models that can be chosen: fetched by name, shipped, in the configured folder, in the hub's cache, each followed
        by its adapters; and those whose folder or file was named when the lab was started. Only configs and headers are
        read."""
        from decodescope.engine.session.load import shipped_models as shipped

        usual = self._usual
        offered = _fetched_offers(usual)
        offered += [
            _make_offer(x["name"], x["name"], "shipped", Path(x["path"]), usual, x["adapter"])
            for x in shipped()
        ]
        if self.more is not None and self.more.is_dir():
            root = self.more.resolve()
            # no link that leads out
            inside = [x for x in sorted(self.more.iterdir()) if x.resolve().is_relative_to(root)]
            offered += _make_offers(((str(x.resolve()), x.name, x) for x in inside), "folder", usual)
            offered += _gguf_offers(_gguf_paths([self.more, *inside], root), "folder", usual)
        snapshots = _hub_snapshots()
        offered += _make_offers(((str(x), name, x) for name, x in snapshots), "hub", usual)
        offered += _gguf_offers(_gguf_paths(x for _, x in snapshots), "hub", usual)
        offered += _remembered_offers(self._remembered, usual)
        offered += _named_offers(self.names.values(), usual)
        before = self._offered  # an unchanged offer keeps its tokenizer
        offers = [before[x.key] if before.get(x.key) == x else x for x in offered if x is not None][
            :MOST_OFFERED
        ]
        self._offered = {x.key: x for x in offers}
        return offers

    def offer(self, key: str) -> Offer | None:
        """The offer of that key, if there is one; a model to be made from an offered one is offered too."""
        if key not in self._offered and key not in self._rewritten:
            base, place = split_key(key)
            if all(place):
                one = self.offer(base)
                one = None if one is None else _placed_offer(one, key, place)
            else:
                self.offers()
                one = self._transformed_offer(key)
            if one is not None:
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
            parts = parse_transform_list(text)
            text = format_transform_list(parts)
        except ParamError:
            return None
        if offer is None or not text or (_named_file(parts) and key not in self.names.values()):
            return None
        name = str(with_weights(offer.name, text))
        transformed = replace(offer, name=name, spec=replace(offer.spec, name=name, weights=text))
        return _placed_offer(transformed, key, self._usual)

    def key(self, name: str) -> str | None:
        """The key of a model, from its key or its name; None: there is no such model here.
        A key found by a name has no type and device."""
        if name in self.present or name in self.names.values() or self.offer(name) is not None:
            return name
        known: dict[str, Model | Offer] = {**self._offered, **self.present}
        if (fetched := find_fetchable(name)) is not None and fetched.name in known:
            return fetched.name
        return next((split_key(key)[0] for key, x in known.items() if x.name == name), None)

    def recorded_key(self, fingerprint: Any, name: str, place: Placement) -> str | None:
        """The key of the model of a recorded run, in the type and on the device of `place`; None: there is no such model here.
        It has the recorded weights if they are loaded; else the recorded name, if that is a shipped or fetched model's; else
        the weights, if their folder is remembered; else the name."""
        same = {key: x for key, x in self.present.items() if x.fingerprint == fingerprint}
        if (loaded := next((key for key, x in same.items() if placement_of(x) == place), None)) is not None:
            return loaded
        if same:
            return self.placed(split_key(next(iter(same)))[0], place)
        named = self.key(name)
        offer = None if named is None else self.offer(named)
        if offer is None or offer.source not in ("shipped", "fetched"):
            named = self.remembered_key(fingerprint) or named
        return None if named is None else self.placed(named, place)

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
                missing = missing_model(key)
                raise RequestRefusal(_no_offer(key), offer="" if missing is None else missing.name)
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
            offer = self.offer(key) if model is None else None
            again = key in counted
            counted.add(key)
            if model is not None:
                there += 0 if again else _weight_bytes(model)
                each = model.decoder.dtype.itemsize
                cache += cache_bytes(model.spec, holds(role, model.spec, each), each)
            elif offer is not None:
                weights[offer.name] = offer.size
                each = number_bytes(offer.place.dtype)
                cache += cache_bytes(offer.spec, holds(role, offer.spec, each), each)
        return MemoryEstimate(weights, there, cache, tokens, free_memory(self._device_of(names)))

    def _device_of(self, names: Mapping[str, str]) -> str:
        """The device of these models (role -> key), which is one."""
        return next((self.placement(key).device for key in names.values()), usual_device())

    def admit(self, names: Mapping[str, str], wanted: MemoryEstimate | None = None) -> None:
        """Raise RequestRefusal if some of these models (role -> key) must be loaded but there is no room for `wanted`.
        This assumes that the models that no run needs are unloaded. None: no cache is wanted."""
        if len(self.loaded_models(names)) == len(names):
            return
        wanted = wanted or self.estimate(names, 0)
        spare = sum(_weight_bytes(x) for x in self._spare_models(names).values())
        if not wanted.fits_beside(spare):
            called = " and ".join(dict.fromkeys(x.name for x in self.readers(names).values()))
            ways = [*self._fitting_choices(names, wanted, spare), "a smaller model"]
            ways += ["fewer new tokens"] if wanted.tokens else []
            raise RequestRefusal(
                f"{called} would take {wanted.parts}, and {format_count((wanted.free or 0) + spare)}B are free: "
                f"choose {', or '.join(ways)}."
            )

    def _fitting_choices(self, names: Mapping[str, str], wanted: MemoryEstimate, spare: int) -> list[str]:
        """What would fit in the place of the largest of these models (role -> key) that is not loaded yet."""
        import torch

        from decodescope.engine.session.placement import DTYPES, Room, fitting_choices

        offers = [
            x for key in names.values() if key not in self.present and (x := self.offer(key)) is not None
        ]
        room = wanted.room(spare)
        if not offers or room is None:
            return []
        largest = max(offers, key=lambda x: x.size)
        beside = sum(size for name, size in wanted.weights.items() if name != largest.name)
        dtype, device = DTYPES[largest.place.dtype], torch.device(largest.place.device)
        left = Room(room - beside, room - beside, wanted.cache // dtype.itemsize)
        ways = fitting_choices(largest.folder, largest.spec, dtype, device, left)
        return [f"{x.words} ({format_count(x.size)}B)" for x in ways]

    def _unloaded_for(self, names: Mapping[str, str]) -> list[str]:
        """The models, in words, that must be unloaded before these (role -> key) are loaded, as far as is known now."""
        estimate, freed = self.estimate(names, 0), 0
        gone: list[str] = []
        for model in self._spare_models(names).values():
            if estimate.fits_beside(freed) or not estimate.weights:
                break
            gone.append(f"{model.name} in {placement_of(model).dtype}")
            freed += _weight_bytes(model)
        return gone

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

    key, _ = split_key(key)
    try:
        parts = parse_transform_list(without_weights(key)[1])
    except ParamError as error:
        return f"The weights cannot be made so: {error}"
    if knob := _named_file(parts):
        return (
            f"{knob} names a file of this machine, and the page opens none: leave it empty, or name the model with it when the "
            "lab is started."
        )
    if (missing := missing_model(key)) is not None:
        return f"{missing.title} is not on this machine yet: get it, or choose a model of the list."
    return f"The model {key[:200]!r} is not offered here: choose one of the list."


def _named_file(parts: Iterable[Component]) -> str:
    """The first knob that names a file; empty if there is none. Nothing is opened."""
    return next((f"{part.name}.{knob}" for part in parts for knob in part.file_knobs()), "")


def role_title(role: str) -> str:
    """The page's name for the model in this role."""
    return TITLES.get(role, f"{role.replace('_', ' ').capitalize()} model")


def placement_of(model: Model) -> Placement:
    """The type and device of a loaded model."""
    return Placement(str(model.decoder.dtype).removeprefix("torch."), str(model.decoder.device))


def _row(role: str, reader: Model | Offer, place: Placement, size: int) -> dict[str, Any]:
    """The page's description of a model in its type and on its device; size: bytes of its weights."""
    shape = {"params": reader.spec.params, "context": reader.spec.max_positions}
    return {"role": role, "name": reader.name, **shape, "bytes": size, **place._asdict()}


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


def _make_offers(
    listed: Iterable[tuple[str, str, Path]], source: str, usual: Placement
) -> list[Offer | None]:
    """The offers of these models (key, name, folder), each alone and with each of its adapters."""
    from decodescope.engine.model.checkpoint.adapter import adapter_names, join_reference

    return [
        _make_offer(
            join_reference(key, adapter), join_reference(name, adapter), source, folder, usual, adapter
        )
        for key, name, folder in listed
        for adapter in ("", *adapter_names(folder))
    ]


def _make_offer(
    key: str, name: str, source: str, folder: Path, usual: Placement, adapter: str = ""
) -> Offer | None:
    """An offer, or nothing if there is no model that we can load. usual: type and device that are chosen for all"""
    from decodescope.engine.session.load import describe

    try:
        if not any(folder.glob("*.safetensors")):
            return None
        if (
            source == "hub" and not (folder / "tokenizer.json").is_file()
        ):  # for the user's own folder the page reports it
            return None
        return _placed_offer(
            Offer(key, name, source, describe(folder, name, None, adapter), 0, folder), key, usual
        )
    except (ValueError, OSError):
        return None


def _placed_offer(offer: Offer, key: str, place: Placement) -> Offer:
    """The offer of the same model, under this key, in the type and on the device of `place`; empty ones: the usual."""
    import torch

    from decodescope.engine.session.placement import DTYPES, default_dtype, type_name, weight_bytes

    place = Placement(place.dtype or type_name(default_dtype(offer.folder)), place.device or usual_device())
    dtype, device = DTYPES[place.dtype], torch.device(place.device)
    size = weight_bytes(offer.folder, offer.spec, dtype, device)
    return replace(offer, key=key, size=size, place=place)


def _remembered_offers(places: Iterable[str], usual: Placement) -> list[Offer | None]:
    """The offers of these folders and GGUF files."""
    from decodescope.engine.model.checkpoint.gguf.source import find_gguf

    offers = list[Offer | None]()
    for path in map(Path, sorted(places)):
        with contextlib.suppress(ValueError, OSError):  # it is gone, or holds several models by now
            file = find_gguf(path)
            listed = [(str(path), path.name, path)]
            offers += (
                _make_offers(listed, "folder", usual)
                if file is None
                else _gguf_offers([file], "folder", usual)
            )
    return offers


def _gguf_paths(folders: Iterable[Path], root: Path | None = None) -> Iterator[Path]:
    """The GGUF models in these folders; of a link that leads out of `root` none."""
    from decodescope.engine.model.checkpoint.gguf.source import models_among

    for folder in folders:
        names = [x.name for x in folder.iterdir() if x.is_file()] if folder.is_dir() else []
        paths = [folder.absolute() / x for x in models_among(names)]
        yield from (x for x in paths if root is None or x.resolve().is_relative_to(root))


def _gguf_offers(paths: Iterable[Path], source: str, usual: Placement) -> list[Offer | None]:
    """The offers of the models in these GGUF files, by their headers."""
    from decodescope.engine.model.checkpoint.gguf.header import model_name
    from decodescope.engine.session.load import describe

    offers = list[Offer | None]()
    for path in paths:
        try:
            spec = describe(path, model_name(path))
            offers.append(_placed_offer(Offer(str(path), spec.name, source, spec, 0, path), str(path), usual))
        except (ValueError, OSError):
            continue
    return offers


def _named_offers(names: Iterable[str], usual: Placement) -> list[Offer | None]:
    """The offers of the models whose folder or GGUF file is one of these names, under that name."""
    from decodescope.engine.core.paths import PathRefusal, expand_path, is_model_path
    from decodescope.engine.model.checkpoint.adapter import split_reference
    from decodescope.engine.model.checkpoint.folder import LoadError
    from decodescope.engine.model.checkpoint.gguf.source import find_gguf

    offers = list[Offer | None]()
    for key in dict.fromkeys(str(without_weights(x)[0]) for x in names):
        base, adapter = split_reference(key)
        try:
            path = expand_path(base)
            written_as_path = path.is_file() or re.search(r"[/\\]", str(base))  # as `load` takes it
            if not written_as_path or not is_model_path(path):
                continue
            file = find_gguf(path)
        except (PathRefusal, LoadError):
            continue  # loading it reports this
        if file is None:
            name = path.resolve().name + (f"+{adapter}" if adapter else "")
            offers.append(_make_offer(key, name, "named", path, usual, adapter))
        else:
            offers += [x and replace(x, key=key) for x in _gguf_offers([file], "named", usual)]
    return offers


def _fetched_offers(usual: Placement) -> list[Offer | None]:
    """The offers of the models that were fetched by name; `load` takes these names."""
    from decodescope.engine.model.fetched.catalogue import fetchable_models, is_fetched, model_path

    offers = list[Offer | None]()
    for model in fetchable_models():
        for offer in _gguf_offers([model_path(model)] if is_fetched(model) else [], "fetched", usual):
            if offer is not None:
                spec = replace(offer.spec, name=model.name)
                offers.append(replace(offer, key=model.name, name=model.name, spec=spec))
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
