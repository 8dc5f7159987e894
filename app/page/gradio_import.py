"""Gradio import: import the page library without its work for editors and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType, SimpleNamespace

STUBS = (
    "gradio.component_meta",
    "create_or_modify_pyi",
)  # the module and its function that writes an editor's stubs
UNUSED = ("IPython",)  # it imports them if they are installed, and works without them
LATER = ("pandas",)  # it names them on import, and needs them for inputs that the page does not have


class _ImportFinder(MetaPathFinder):
    """Rejects unused modules, defers modules needed later, and keeps the stub module from writing stubs."""

    def __init__(self) -> None:
        self.written: tuple[ModuleType, object] | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return no spec, so the next finder is asked, for all but those three."""
        if name in UNUSED:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)
        spec = PathFinder.find_spec(name, path) if name in (STUBS[0], *LATER) else None
        if spec is None or spec.loader is None:
            return None
        if name in LATER:
            spec.loader = LazyLoader(spec.loader)
            return spec
        execute = spec.loader.exec_module

        def spared(module: ModuleType) -> None:
            execute(module)
            self.written = module, getattr(module, STUBS[1])
            setattr(module, STUBS[1], lambda *given: None)

        spec.loader.exec_module = spared  # type: ignore[method-assign] # of this one spec's own loader
        return spec


@contextmanager
def skip_unused_imports() -> Iterator[None]:
    """Skip unused work of the page library while it is imported and builds a page; the patch is removed afterwards.
    The library reads the source of each of its inputs and compares it with the stub file next to it, which only editors use.
    This takes a quarter of the time until a page answers."""
    finder = _ImportFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if finder.written is not None:
            module, function = finder.written
            setattr(module, STUBS[1], function)


def report_failures(report: Callable[[], None]) -> None:
    """Let the queue of the page library call `report` where it would print a stack trace, which any request can cause."""
    import gradio.queueing

    gradio.queueing.traceback = SimpleNamespace(print_exc=report)  # type: ignore[attr-defined, assignment]
