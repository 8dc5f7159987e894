"""Places: where the user's data lie."""

from __future__ import annotations

from pathlib import Path


def data_folder(chosen: str | Path | None = None) -> Path:
    """The folder of the user's data: the one chosen with --data, else the platform's usual place. Not created here."""
    if chosen is not None:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("decodescope", appauthor=False))


def traces(chosen: str | Path | None = None) -> Path:
    """The folder of the recorded runs, inside the data folder."""
    return data_folder(chosen) / "traces"
