"""The lab: views of traces, for page and notebook. Nothing here imports torch.

The names of a notebook are loaded on first use: the page's server does not load widgets, and `explain` works without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.extras import require

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

_ENGINE, _LAB = "decodescope.engine.", "decodescope.lab."
_HOME = {  # name -> its module, and its name there
    "Scope": (_LAB + "views.scope", "Scope"),
    "compare": (_LAB + "views.compare", "compare"),
    "controls": (_LAB + "views.controls", "controls"),
    "decisions": (_LAB + "decision.explain", "decisions"),
    "explain": (_LAB + "decision.explain", "explain"),
    "export_html": (_LAB + "views.export", "export_html"),
    "export_perfetto": (_LAB + "views.perfetto", "export_perfetto"),
    "figure": (_LAB + "charts", "figure"),
    "frame": (_ENGINE + "trace", "frame"),
    "open_trace": (_ENGINE + "trace.file.named_trace", "open_named"),
    "report": (_LAB + "reports.notebook_report", "report"),
    "show": (_LAB + "notebook", "show"),
}
_WIDGETS = ("anywidget", "ipywidgets", "plotly")
_NEEDS = {
    "Scope": _WIDGETS,
    "compare": _WIDGETS,
    "controls": _WIDGETS,
    "show": _WIDGETS,
    "figure": ("plotly",),
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"decodescope.lab has no {name!r}; it offers {', '.join(__all__)}")
    if name in _NEEDS:
        require("notebooks", name, _NEEDS[name])
    module, there = _HOME[name]
    return getattr(importlib.import_module(module), there)
