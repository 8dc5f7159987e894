"""Components: the named parts that a Method is composed of, and the registry that finds them by their file's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

from .params import Param, ParamError, nearest, param
from .probe import Needs

if TYPE_CHECKING:
    from .method import Method
    from .spec import ModelSpec

# kind -> the folder of its components
FOLDERS = {
    "strategy": "strategies",
    "drafter": "drafters",
    "schedule": "schedules",
    "acceptance": "acceptance",
    "policy": "policies",
    "depth": "depth",
    "sampler": "samplers",
}
KINDS = tuple(FOLDERS)
C = TypeVar("C", bound="Component")


class Component:
    """Base of every part. Fields made with `param` are its knobs.

    A component is a recipe: run-time state is made in its `begin` (or `start`), never in a field, and a Session works
    on a copy of its own. Class attributes:

    kind:       "drafter", "policy", ...; given by the family's base class
    title:      as people call it
    source:     paper and section, or repository
    needs:      what it asks of a forward pass
    conflicts:  name of another component -> why the two do not go together
    caution:    one sentence that a page shows beside the component; empty if there is nothing to warn of
    """

    kind: ClassVar[str]
    title: ClassVar[str] = ""
    source: ClassVar[str] = ""
    needs: ClassVar[Needs] = Needs()
    conflicts: ClassVar[dict[str, str]] = {}
    caution: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for p in self.params():
            setattr(self, p.name, p.check(getattr(self, p.name), self.name))

    @property
    def name(self) -> str:
        """The module's file name: what the command line, traces and pages call this component."""
        return type(self).__module__.rpartition(".")[2]

    @classmethod
    def params(cls) -> list[Param]:
        """The knobs, in the order in which they are declared."""
        kinds = {"int": int, "float": float, "bool": bool, "str": str}
        made = []
        for f in fields(cast(Any, cls)):
            if "param" in f.metadata:
                default = None if f.default is MISSING else f.default
                made.append(Param(f.name, kinds.get(str(f.type), str), default, **f.metadata["param"]))
        return made

    def knobs(self) -> dict[str, Any]:
        """name -> value of every knob, as it stands in a trace's header."""
        values = asdict(cast(Any, self))
        return {p.name: values[p.name] for p in self.params()}

    def refuse(self, method: Method, spec: ModelSpec) -> str | None:
        """Why this component, as set, cannot work in `method` on a model of shape `spec`; None if it can."""
        return None


@dataclass_transform(field_specifiers=(param,))
def component(cls: type[C]) -> type[C]:
    """Make `cls` a dataclass whose fields are knobs. It is found by the name of its file in its family's folder."""
    return dataclass(cls)


@cache
def registry(kind: str) -> dict[str, type[Component]]:
    """name -> component class for every file in the family's folder, in alphabetical order.

    Raises ValueError for an unknown kind.
    """
    if kind not in FOLDERS:
        raise ValueError(f"no kind {kind!r}; there are {', '.join(KINDS)}.")
    package = importlib.import_module(f".{FOLDERS[kind]}", __package__)
    found: dict[str, type[Component]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name == "base":
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        parts = [x for x in vars(module).values() if _is_part(x, kind) and x.__module__ == module.__name__]
        if len(parts) != 1:
            raise ValueError(f"{module.__name__} defines {len(parts)} components; one file holds exactly one.")
        found[info.name] = parts[0]
    return found


def _is_part(x: Any, kind: str) -> bool:
    return isinstance(x, type) and issubclass(x, Component) and getattr(x, "kind", None) == kind and "title" in vars(x)


def lookup(kind: str, name: str) -> type[Component]:
    """The component class `name` of `kind`; raises ParamError with the nearest name otherwise."""
    shelf = registry(kind)
    if name not in shelf:
        raise ParamError(f"no {kind} is called {name!r}.{nearest(name, shelf)} There are: {', '.join(shelf)}.")
    return shelf[name]


def build(kind: str, name: str, settings: Mapping[str, Any] | None = None) -> Component:
    """Make component `name` of `kind` with the given knobs (values, or text as typed on a command line)."""
    cls = lookup(kind, name)
    known = {p.name: p for p in cls.params()}
    values = {}
    for key, value in (settings or {}).items():
        if key not in known:
            has = f"It has: {', '.join(known)}." if known else "It has none."
            raise ParamError(f"{name} has no knob {key!r}.{nearest(key, known)} {has}")
        values[key] = known[key].parse(value, name) if isinstance(value, str) else value
    return cls(**values)


def written(kind: str, text: str, where: str) -> Component:
    """The component that `text` names, e.g. "confidence_exit threshold=0.7 first=1"; `where` stands in messages. Raises
    ParamError if there is no such component or knob."""
    name, *knobs = text.replace(",", " ").split() or [""]
    odd = next((knob for knob in knobs if "=" not in knob), None)
    if odd is not None:
        raise ParamError(f"{where} = {text!r}: write {odd!r} as knob=value, after the name.")
    return build(kind, name, dict(knob.split("=", 1) for knob in knobs))
