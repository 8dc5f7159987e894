"""Style: colours, words and number formats, the same in every view. The page's own copy is in web/styles/scope.css."""

from __future__ import annotations

# Colour tokens; web/styles/scope.css declares the same values for the drawing module, and a test compares them.
LIGHT = {
    "bg": "#ffffff",
    "panel": "#f6f8fa",
    "line": "#e4e8ec",
    "edge": "#c3cad2",
    "branch": "#88929c",
    "ink": "#1b1f24",
    "muted": "#57606a",
    "faint": "#7c858e",
    "accept": "#0059a0",
    "reject": "#c2410c",
    "target": "#16875c",
    "target-text": "#11764f",
    "accept-soft": "#e9f2f9",
    "reject-soft": "#fcf0ea",
    "target-soft": "#e5f4ed",
    "time-1": "#e3e8ed",
    "time-2": "#b4bdc6",
    "time-3": "#6b7580",
    "ring": "#1b1f24",
    "gone": "#eef1f4",
    "mass-low": "#bec8d2",
    "mass-high": "#00224e",
    "bits-1": "#e8c51c",
    "bits-2": "#66b53f",
    "bits-3": "#1b7f79",
    "bits-4": "#24588f",
    "bits-5": "#43195c",
    "on-few": "#1b1f24",
    "on-many": "#ffffff",
}
DARK = {
    "bg": "#14171c",
    "panel": "#1c2128",
    "line": "#2a313a",
    "edge": "#46505b",
    "branch": "#5f6a76",
    "ink": "#e6edf3",
    "muted": "#9da7b3",
    "faint": "#858e98",
    "accept": "#4c9fe8",
    "reject": "#ff8a3d",
    "target": "#86e8be",
    "target-text": "#86e8be",
    "accept-soft": "#16293b",
    "reject-soft": "#33231a",
    "target-soft": "#17302a",
    "time-1": "#262d36",
    "time-2": "#48525d",
    "time-3": "#8a95a1",
    "ring": "#f0e442",
    "gone": "#1d222a",
    "mass-low": "#323b47",
    "mass-high": "#e2ecf7",
    "bits-1": "#fde725",
    "bits-2": "#7fd34e",
    "bits-3": "#2fb5a8",
    "bits-4": "#4f8fd6",
    "bits-5": "#8f3d86",
    "on-few": "#14171c",
    "on-many": "#e6edf3",
}
SANS = (
    "-apple-system",
    "BlinkMacSystemFont",
    "Segoe UI",
    "Roboto",
    "Noto Sans",
    "Ubuntu",
    "Liberation Sans",
    "Arial",
    "sans-serif",
)
MONO = ("ui-monospace", "SF Mono", "Cascadia Mono", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")

# The statuses of a draft tree's node, and a view's word for each.
WORDS = {
    "root": "root",
    "accept": "accepted",
    "reject": "rejected",
    "unreached": "not reached",
    "bonus": "bonus",
    "resample": "resampled",
    "target": "target's own",
    "draft": "small model's own",
}
PASSENGER = (
    "passenger"  # the word for an "unreached" node that is never tried: it rode the pass for later drafts
)
CORRECTION = (
    "correction"  # the word for a "resample" that nothing drew: the target's choice, where no guess was it
)
# Origin of an emitted token in a trace -> its mark in a view. Residual and correction have one mark and two words.
STATUS_OF_ORIGIN = {
    "accepted": "accept",
    "bonus": "bonus",
    "residual": "resample",
    "correction": "resample",
    "target": "target",
    "draft": "draft",
}


def origin_word(origin: str) -> str:
    """A view's words for an emitted token, by its origin in a trace."""
    return CORRECTION if origin == "correction" else WORDS[STATUS_OF_ORIGIN.get(origin, "target")]


def format_percent(share: float) -> str:
    """A share for people: `61 %`."""
    return f"{100 * share:.0f} %"


def format_bytes(count: float) -> str:
    """Bytes with a binary unit: `512 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the loop always returns")


def format_count(number: float) -> str:
    """A large number in short: `9.9 M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f} {unit}"
    return f"{number:.0f}"
