"""Components: the named parts that a Method is composed of, and the registry that finds them by their file's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from . import calibration, files
from .activity import Activity
from .method_view import MethodView
from .note import Note
from .params import TYPES, Param, ParamError, did_you_mean
from .params import param as param  # the file of a part imports it from here, together with `component`
from .paths import shorten_path
from .probe import Needs
from .spec import ModelSpec

# kind -> the folder of its components
FOLDERS = {
    "strategy": "strategies",
    "drafter": "drafters",
    "schedule": "schedules",
    "acceptance": "acceptance",
    "prompt_compression": "prompt_compression",
    "policy": "policies",
    "kv_compression": "kv_compression",
    "adaptive_depth": "adaptive_depth",
    "unmasking": "unmasking",
    "router": "routers",
    "guidance": "guidance",
    "sampler": "samplers",
    "weights": "weights",
}
OF_MODEL = ("weights",)  # kinds that make a model of another before any method runs on it
KINDS = tuple(x for x in FOLDERS if x not in OF_MODEL)  # kinds of a Method's parts
METHODS = "decodescope.engine.methods"
C = TypeVar("C", bound="Component")
_ADDED: dict[str, dict[str, type[Component]]] = {}  # kind -> name -> component from outside of the package


class Component:
    """Base of every part. Fields made with `param` are its knobs.

    A component is a recipe. Its `begin` (or `start`) makes run-time state, never a field, and a Session works on its own copy.
    Class attributes:

    kind:       "drafter", "policy", ...; given by the family's base class
    title:      as people call it
    source:     paper and section, or repository
    conflicts:  name of another component -> why the two do not go together
    caution:    one sentence that a page shows next to the component; empty if there is nothing to warn of
    tells:      the signals that it records in each step, by name. A view draws each by its kind (docs/trace.md says where the
                values are stored)
    lanes:      the further models that it works with, by role: "draft", "large", ...
    own_tokens: those of `lanes` whose model may have another tokenizer than the target, since the part translates, or asks it
                for no ids
    lane_needs: what it asks of the passes of those models
    listed:     whether people choose it by its name; a part that combines several named parts is not listed

    calibrated: of an instance: knob -> the source of its value, for the knobs that were given as `calibrated:NAME`
    """

    kind: ClassVar[str]
    title: ClassVar[str] = ""
    source: ClassVar[str] = ""
    conflicts: ClassVar[dict[str, str]] = {}
    caution: ClassVar[str] = ""
    tells: ClassVar[dict[str, Note]] = {}
    lanes: ClassVar[tuple[str, ...]] = ()
    own_tokens: ClassVar[tuple[str, ...]] = ()
    lane_needs: ClassVar[Needs] = Needs()
    listed: ClassVar[bool] = True
    calibrated: Mapping[str, calibration.CalibratedValue] = {}

    @property
    def needs(self) -> Needs:
        """What it asks of a forward pass; a constant of the class if no knob decides it."""
        return Needs()

    def __post_init__(self) -> None:
        for p in self.params():
            setattr(self, p.name, p.check(getattr(self, p.name), self.name))

    @property
    def name(self) -> str:
        """The module's file name: what the command line, traces and pages call this component."""
        return type(self).__module__.rpartition(".")[2]

    @classmethod
    def params(cls) -> list[Param]:
        """The knobs, in the order in which they are declared: a class's own before those of its bases."""
        knobs = []
        for f in sorted(fields(cast(Any, cls)), key=lambda f: _declared_at(cls, f)):
            if "param" in f.metadata:
                default = None if f.default is MISSING else f.default
                kind, item = TYPES[_annotation_text(f.type)]
                knobs.append(Param(f.name, kind, default, item=item, **f.metadata["param"]))
        return knobs

    def knobs(self) -> dict[str, Any]:
        """name -> value of every knob, as a trace's header records it."""
        return {p.name: p.record(getattr(self, p.name)) for p in self.params()}

    @classmethod
    def roles(cls) -> tuple[str, ...]:
        """All that `lanes` may name, however the knobs are set."""
        return cls().lanes

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        """Why a model of shape `spec` cannot have this role, one of `lanes`; None if it can."""
        return None

    def lane_tokens(self, prompt: int, new: int) -> int:
        """Tokens that a model of `lanes` holds for it at most, in a run over `prompt` tokens with `new` behind them."""
        return prompt + new

    def file_knobs(self) -> dict[str, str]:
        """knob -> path, or NAME@HASH, of the knobs that name a file."""
        return {p.name: getattr(self, p.name) for p in self.params() if p.file and getattr(self, p.name)}

    def mark_files(self) -> None:
        """Replace the path in every knob that names a file by NAME@HASH, as a record does.

        Raises FileRefusal for a file that cannot be used.
        """
        for p in self.params():
            if p.file and (value := getattr(self, p.name)):
                setattr(self, p.name, files.file_mark(value, p.most or 0))

    def file_problem(self) -> str | None:
        """Why a file that a knob names cannot be used; None if all can."""
        for p in self.params():
            if (
                p.file
                and (value := getattr(self, p.name))
                and (why := files.file_problem(value, p.most or 0))
            ):
                return f"{self.name}.{p.name}: {why}"
        return None

    def record(self) -> dict[str, Any]:
        """Name and knobs, as a trace's header records them."""
        return {"name": self.name, **self.knobs()}

    def describe(self) -> dict[str, Any]:
        """Describe the component in a trace's header, in addition to its name and knobs.

        So a reader of the trace need not know the component by name. engine/trace/records/parts.py lists the words of the
        description.
        """
        return {}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Component:
        """Build the component that a trace's header describes."""
        return build(cls.kind, record["name"], {k: x for k, x in record.items() if k != "name"})

    @property
    def knobs_as_text(self) -> str:
        """Its knobs and their values, as a sentence names them; empty: it has none."""
        return ", ".join(f"{knob} = {value}" for knob, value in self.knobs().items())

    def idle_reason(self, did: Activity) -> str:
        """A sentence: why a run with the activity `did` is as it would be without this component.

        Empty: it did something, it is there to do nothing, or the counts do not say.
        """
        return ""

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        """Why this component, as set, cannot work in `method` on a model of shape `spec`; None if it can."""
        return None


def _declared_at(cls: type, field: Field[Any]) -> int:
    """How far above `cls` the class is that declares this field; 0: `cls` itself."""
    held = (vars(base).get("__dataclass_fields__", {}).get(field.name) for base in cls.__mro__)
    return max(i for i, one in enumerate(held) if one is field)


@dataclass_transform()
def component(cls: type[C]) -> type[C]:
    """Make `cls` a dataclass whose fields are knobs.

    The registry finds it by the name of its file in its family's folder.
    """
    return dataclass(cls)


@cache
def registry(kind: str) -> dict[str, type[Component]]:
    """name -> component class for every file in the family's folder and the rooms inside it, in alphabetical order.

    Raises ValueError for an unknown kind.
    """
    if kind not in FOLDERS:
        raise ValueError(f"no kind {kind!r}; there are {', '.join(FOLDERS)}.")
    shelf: dict[str, type[Component]] = {}
    for path in _component_modules(f"{METHODS}.{FOLDERS[kind]}"):
        module = importlib.import_module(path)
        parts = [x for x in vars(module).values() if _is_part(x, kind) and x.__module__ == path]
        if len(parts) != 1:
            raise ValueError(f"{path} defines {len(parts)} components; one file holds exactly one.")
        name = path.rpartition(".")[2]
        if name in shelf:
            raise ValueError(
                f"{path} and {shelf[name].__module__} share a name; within a kind names are unique."
            )
        shelf[name] = parts[0]
    for name, cls in _ADDED.get(kind, {}).items():
        shelf.setdefault(name, cls)
    return dict(sorted(shelf.items()))


def add_part(cls: type[Component]) -> None:
    """Put a component from outside of the package into the registry, under the name of its file.

    One that was added before under the same name is replaced. Raises ParamError for a name of the package's own parts.
    """
    name = cls.__module__.rpartition(".")[2]
    added = _ADDED.setdefault(cls.kind, {})
    if name in registry(cls.kind) and name not in added:
        raise ParamError(f"There is a {cls.kind} {name!r} already: give the file another name.")
    added[name] = cls
    forget_registry()


def forget_registry() -> None:
    """Collect the parts, and the roles that they may ask for, anew at the next request."""
    registry.cache_clear()
    roles.cache_clear()


def parts_in(module: Any) -> list[type[Component]]:
    """The components that a module defines itself, of all kinds."""
    return [
        x
        for x in vars(module).values()
        if any(_is_part(x, kind) for kind in FOLDERS) and x.__module__ == module.__name__
    ]


@cache
def roles() -> tuple[str, ...]:
    """The roles of further models that some component may ask for, in the order of the kinds; no role twice."""
    return tuple(
        dict.fromkeys(role for kind in KINDS for part in registry(kind).values() for role in part.roles())
    )


def _annotation_text(annotation: Any) -> str:
    """An annotation as it is written: text already under `from __future__ import annotations`, not so in a notebook's cell."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _component_modules(package: str) -> Iterator[str]:
    """The modules of a family's folder and of its subfolders; modules in `shared` are no methods."""
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if not info.ispkg:
            yield info.name
        elif not info.name.endswith(".shared"):
            yield from _component_modules(info.name)


def _is_part(x: Any, kind: str) -> bool:
    return (
        isinstance(x, type)
        and issubclass(x, Component)
        and getattr(x, "kind", None) == kind
        and "title" in vars(x)
    )


def lookup(kind: str, name: str) -> type[Component]:
    """The component class `name` of `kind`; raises ParamError with the nearest name otherwise."""
    shelf = registry(kind)
    if name not in shelf:
        raise ParamError(
            f"no {kind} is called {shorten_path(name)!r}.{did_you_mean(name, shelf)} There are: {', '.join(shelf)}."
        )
    return shelf[name]


def build(kind: str, name: str, settings: Mapping[str, Any] | None = None) -> Component:
    """Make component `name` of `kind` with the given knobs (values, or text as typed on a command line).

    A number, or a list of numbers, may also be a calibrated value, or `calibrated:NAME`.
    """
    cls = lookup(kind, name)
    known = {p.name: p for p in cls.params()}
    values: dict[str, Any] = {}
    chosen: dict[str, calibration.CalibratedValue] = {}
    for key, value in (settings or {}).items():
        if key not in known:
            has = f"It has: {', '.join(known)}." if known else "It has none."
            raise ParamError(f"{name} has no knob {key!r}.{did_you_mean(key, known)} {has}")
        if isinstance(value, str) and value.startswith(calibration.MARK) and known[key].is_numeric:
            value = calibration.load_named(value)
        if isinstance(value, calibration.CalibratedValue):
            if why := value.knob_conflict(kind, key):
                raise ParamError(why)
            chosen[key] = value
            value = value.value
        values[key] = known[key].read(value, name)
    part = cls(**values)
    if chosen:
        part.calibrated = chosen
    return part


def component_from_record(kind: str, record: Mapping[str, Any]) -> Component:
    """Build the component that a trace's header records as {"name": ..., knob: value, ...}.

    Raises ParamError if the record names no component of ours: the record may come from anywhere.
    """
    if kind not in FOLDERS or not isinstance(record, Mapping) or not isinstance(record.get("name"), str):
        raise ParamError(f"The record names no {kind[:40]} of ours: record the run again with this version.")
    return lookup(kind, record["name"]).from_record(record)


def note_declarations(method: Mapping[str, Any]) -> dict[str, dict[str, Note]]:
    """kind -> name -> note: the signals that the parts of a method record.

    `method` is the method's record {kind: {"name": ..., knob: value, ...}}. All stages of a chain of samplers count together. A
    reference line that is a knob gets the knob's number. The record may come from anywhere: an unknown part declares nothing.
    """
    notes: dict[str, dict[str, Note]] = {}
    for kind in KINDS:
        part = method.get(kind)
        for stage in [part, *(part.get("stages") or [])] if isinstance(part, dict) else []:
            name = stage.get("name") if isinstance(stage, dict) else None
            cls = registry(kind).get(name) if isinstance(name, str) else None
            if cls is not None and cls.tells:
                notes.setdefault(kind, {}).update(
                    (x, _resolve_note(note, x, cls, stage)) for x, note in cls.tells.items()
                )
    return notes


def _resolve_note(note: Note, name: str, cls: type[Component], record: Mapping[str, Any]) -> Note:
    """The note with the number of its line, if the line is a knob rather than another note; it may have the note's own name.

    The rows of a chain's grid are its stages.
    """
    if note.kind == "grid" and isinstance(stages := record.get("stages"), list):
        return replace(note, rows=[str(x.get("name")) for x in stages if isinstance(x, dict)])
    knob = next(
        (
            p
            for p in cls.params()
            if p.name == note.line and (note.line == name or note.line not in cls.tells)
        ),
        None,
    )
    value = None if knob is None else record.get(knob.name, knob.default)
    return replace(note, at=float(value)) if isinstance(value, int | float) else note


def parse_component(kind: str, text: str, where: str) -> Component:
    """Parse a component that `text` names, e.g. "confidence_exit threshold=0.7 min_layers=1".

    A word without a name that follows a value is a further item of that value: "rsd_c branching=3,2,1". Messages name the
    source of the text as `where`. Raises ParamError if there is no such component or knob.
    """
    name, *words = text.replace(",", " ").split() or [""]
    knobs: dict[str, str] = {}
    for word in words:
        knob, named, value = word.partition("=")
        if not named and not knobs:
            raise ParamError(f"{where} = {text!r}: write {word!r} as knob=value, after the name.")
        if named:
            knobs[knob] = value
        else:
            knobs[[*knobs][-1]] += f",{word}"
    if any(x.startswith(calibration.MARK) for x in knobs.values()):
        raise ParamError(
            f"{where}: a calibrated value is for what changes a text, and its text is checked; give a number."
        )
    return build(kind, name, knobs)
