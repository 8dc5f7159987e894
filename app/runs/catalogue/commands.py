"""Commands: methods that are a command of their own, since no composition of parts does the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from decodescope.engine.core.exactness import Exactness

from .parts import method_results


@dataclass(frozen=True)
class Command:
    """A method that is run by a command. idea: what it does, in a sentence; run: the command; exactness: of each text."""

    name: str
    title: str
    idea: str
    source: str
    exactness: Exactness
    run: str


COMMANDS = (
    Command(
        "cachegen",
        "CacheGen, a cache in a file",
        "Write a prompt's keys and values to a file, in few bits, and decode from there without reading the prompt again.",
        "Liu et al. 2024, arXiv:2310.07240; UChi-JCL/CacheGen",
        exactness="lossy",
        run="decodescope cache save story.dscache --model lab --prompt 'Once upon a time' && "
        "decodescope cache load story.dscache --model lab",
    ),
    Command(
        "batchllm",
        "BatchLLM, many prompts",
        "Decode many prompts at once, and read and hold once what several of them begin with.",
        "Zheng et al. 2024, arXiv:2412.03594",
        exactness="lossless",
        run="decodescope batch --model lab --prompts FILE",
    ),
    Command(
        "answers",
        "A cache of answers",
        "Keep answers by the exact prompt, so that a repeat costs no pass, and let those go that are least worth their place.",
        "Zhu et al. 2023, arXiv:2306.02003; GDSF: Cherkasova 1998",
        exactness="lossless",
        run="decodescope workload --model lab --prompts FILE",
    ),
)


def commands() -> list[dict[str, Any]]:
    """Every command as plain data, with the authors' headline."""
    headlines = method_results()["headlines"].get("command", {})
    return [asdict(x) | {"kind": "command", "headline": headlines.get(x.name, "")} for x in COMMANDS]
