"""Extras: the packages that `pip install decodescope` leaves out, and the refusal where one is missing. It loads nothing."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from .refusal import Refusal

# name of an extra in pyproject.toml -> what it installs, as Python imports it
EXTRAS = {
    "app": ("gradio", "fastapi", "uvicorn", "plotly"),
    "notebooks": (
        "jupyterlab",
        "nbconvert",
        "nbclient",
        "nbformat",
        "jupyter_client",
        "ipywidgets",
        "anywidget",
        "traitlets",
        "plotly",
        "pandas",
    ),
    "bench": ("plotly", "pandas"),
}


class MissingExtra(Refusal, ImportError):
    """A package of an extra is not installed. One sentence, with the command that installs it."""


def missing_packages(packages: Sequence[str]) -> list[str]:
    """Those of the packages that cannot be imported here."""
    return [name for name in packages if not _is_installed(name)]


def install_command(extra: str) -> str:
    """The command that installs an extra; shells on every system read these quotes."""
    return f'pip install "decodescope[{extra}]"'


def require(extra: str, what: str, packages: Sequence[str] = ()) -> None:
    """Raise MissingExtra unless `packages` (default: all of the extra) are installed. `what` is the feature that needs them."""
    if gone := missing_packages(packages or EXTRAS[extra]):
        raise MissingExtra(
            f"{what} needs packages that are not installed ({', '.join(gone)}): {install_command(extra)}"
        )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # a finder refuses it, or a module of this name was loaded by hand
        return False
