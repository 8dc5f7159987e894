"""The lab: views of traces, for page and notebook. Nothing here imports torch.

The names of a notebook are loaded on first use, so that the page's server need not load widgets.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .notebook import Scope as Scope
    from .notebook import compare as compare
    from .notebook import controls as controls
    from .notebook import decisions as decisions
    from .notebook import explain as explain
    from .notebook import export_html as export_html
    from .notebook import export_perfetto as export_perfetto
    from .notebook import figure as figure
    from .notebook import frame as frame
    from .notebook import open_trace as open_trace
    from .notebook import report as report
    from .notebook import show as show

__all__ = [
    "Scope",
    "compare",
    "controls",
    "decisions",
    "explain",
    "export_html",
    "export_perfetto",
    "figure",
    "frame",
    "open_trace",
    "report",
    "show",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"decodescope.lab has no {name!r}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(".notebook", __name__), name)
