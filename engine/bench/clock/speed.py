"""bench: how fast this machine decodes with our methods, compared with transformers on the same weights."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.core.reference import without_weights
from decodescope.engine.kernels.choice import pass_threads, set_pass_threads
from decodescope.engine.model.checkpoint.folder import LoadError, read_json
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.method import Method
from decodescope.engine.session.run import encode_text_or_ids
from decodescope.engine.timing.measure import machine_name
from decodescope.engine.trace.records.events import Level

from ..questions.columns import columns, count_weight_bytes, measured_peak
from ..questions.prompts import PROMPTS
from .contest import Contestant, DecodeResult, engine_contestant, take_turns


class Reference:
    """transformers on the weights of `model` before transforms, in its type and place.

    A text ends at its length, or with a token of `stop`.

    Our side reads only stop tokens of a model's generation config, so transformers reads no more of it. Penalties, minimal
    lengths and suppressed tokens of the folder would act on one side alone. set_aside: model -> the settings of its folder that
    are not used.
    """

    def __init__(self, model: Model, draft: Model | None, stop: Sequence[int] = ()):
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.version, self.set_aside = transformers.__version__, dict[str, dict[str, Any]]()
        self.model, self.draft = self._load(model, stop), None if draft is None else self._load(draft, stop)

    def _load(self, model: Model, stop: Sequence[int]) -> Any:
        from transformers import AutoModelForCausalLM, GenerationConfig

        if model.spec.adapter:
            raise LoadError(
                f"{model.name} has an adapter, which transformers would leave out; measure the model without it."
            )
        if model.spec.stored_as:
            raise LoadError(
                f"{model.name} was read from a GGUF file, which transformers would dequantise in minutes; measure the original "
                "checkpoint."
            )
        own = GenerationConfig(eos_token_id=list(stop) or None, pad_token_id=PAD)
        if unused := non_default_settings(model.path, own._get_default_generation_params()):
            self.set_aside[model.name] = unused
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            model.path,
            generation_config=own,
            dtype=model.decoder.dtype,
            local_files_only=True,
            trust_remote_code=False,
        )
        return loaded.to(model.decoder.device).eval()

    def contestant(
        self, name: str, new: int, drafting: dict[str, Any] | None = None, **options: Any
    ) -> Contestant:
        """generate() with these options; with `drafting`, its assisted generation under these settings.

        They are set in the draft model's generation config, where it reads them from.
        """

        def write(prompt: list[int]) -> DecodeResult:
            ids = torch.tensor([prompt], device=self.model.device)
            more = dict(options)
            if drafting is not None:
                assert self.draft is not None
                self.draft.generation_config.update(**{**DRAFTING, **drafting})
                more["assistant_model"] = self.draft
            written = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, **more
            )
            return DecodeResult(written[0, len(prompt) :].tolist())

        settings = {**options, **({} if drafting is None else {**DRAFTING, **drafting})}
        return Contestant(name, "transformers", settings, write)

    def contestants(self, new: int) -> list[Contestant]:
        """Every way to decode of theirs: plain, prompt lookup, and with a draft model at its defaults and at our length."""
        contestants = [
            self.contestant("generate", new),
            self.contestant(LOOKUP, new, prompt_lookup_num_tokens=COPIED),
        ]
        if self.draft is not None:
            equal = {"num_assistant_tokens": LENGTH, "assistant_confidence_threshold": 0.0}
            contestants += [
                self.contestant(ASSISTED, new, {}),
                self.contestant(f"{ASSISTED}, equal length", new, equal),
            ]
        return contestants


def non_default_settings(folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of generation in a model's folder that differ from transformers' `defaults`.

    They are those of generation_config.json, and of an old config.json, which holds them too. Ids of special tokens are left
    out: both sides read them alike or not at all.
    """
    old = {
        name: value for name, value in (read_json(folder, "config.json") or {}).items() if name in defaults
    }
    chosen = old | (read_json(folder, "generation_config.json") or {})
    return {
        name: value
        for name, value in sorted(chosen.items())
        if value is not None and value != defaults.get(name) and name not in DESCRIBING
    }


PAD = 0  # any id: each text is alone, so none is padded
DESCRIBING = frozenset(
    (
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "decoder_start_token_id",
        "transformers_version",
        "_from_model_config",
    )
)
# the defaults of assisted generation in transformers 5
DRAFTING = {
    "num_assistant_tokens": 20,
    "assistant_confidence_threshold": 0.4,
    "num_assistant_tokens_schedule": "constant",
}
LENGTH = 4  # our draft model's, and theirs at equal length
COPIED = 10  # tokens of a prompt lookup, the default of both
ASSISTED, LOOKUP = "assisted generation", "prompt lookup"  # theirs


def all_contestants(
    model: Model, draft: Model | None, theirs: Reference, new: int, level: Level | None
) -> list[Contestant]:
    """Everyone who takes part."""
    plain = Method()
    lookup = Method.from_names({"drafter": "prompt_lookup"}, {"drafter": {"max_draft_tokens": COPIED}})
    alike = Method.from_names(
        {"drafter": "prompt_lookup"}, {"drafter": {"max_draft_tokens": COPIED, "ngram": 2, "match": "first"}}
    )
    contestants = [
        engine_contestant("autoregressive", model, plain, new, level),
        engine_contestant("autoregressive, nothing recorded", model, plain, new),
        engine_contestant("autoregressive, summary", model, plain, new, "summary"),
        engine_contestant("autoregressive, decisions", model, plain, new, "decisions"),
        engine_contestant("prompt_lookup", model, lookup, new, level),
        engine_contestant("prompt_lookup, matching alike", model, alike, new, level),
        engine_contestant(
            "token_recycling", model, Method.from_names({"drafter": "token_recycling"}), new, level
        ),
    ]
    if draft is not None:
        speculative = Method.from_names({"drafter": "draft_model"}, {"drafter": {"max_draft_tokens": LENGTH}})
        contestants.append(engine_contestant("draft_model", model, speculative, new, level, {"draft": draft}))
    return contestants + theirs.contestants(new)


# name of the ratio, who should take less time, who is compared
PAIRS = (
    ("autoregressive against generate", "autoregressive", "generate"),
    ("draft_model against assisted generation", "draft_model", "assisted generation"),
    (
        "draft_model against assisted generation, equal length",
        "draft_model",
        "assisted generation, equal length",
    ),
    ("draft_model against their prompt lookup", "draft_model", "prompt lookup"),
    ("prompt_lookup against prompt lookup", "prompt_lookup", "prompt lookup"),
    ("prompt_lookup against prompt lookup, matching alike", "prompt_lookup, matching alike", "prompt lookup"),
    ("draft_model against our autoregressive", "draft_model", "autoregressive"),
    ("token_recycling against our autoregressive", "token_recycling", "autoregressive"),
    ("prompt_lookup against our autoregressive", "prompt_lookup", "autoregressive"),
)
RECORDING = ("summary", "decisions")


def measure_speed(  # noqa: PLR0913
    model: str = "lab",
    draft: str | None = "lab-draft",
    *,
    dtype: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    new_tokens: int = 128,
    repeats: int = 5,
    prompts: dict[str, str] | None = None,
    level: Level | None = "summary",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure every contestant on every prompt and return the results, as plain data.

    All run greedily in this process, on the same weights, type and threads, and write `new_tokens` tokens. After a warm-up they
    take turns, so that whatever else the machine does meets them all; the order is turned by one each round. A time is that of
    the whole call after loading, prompt and recording included. A ratio is that of the medians over the rounds, and its median
    over the prompts.
    """
    before = pass_threads()
    set_pass_threads(threads or before)
    try:
        target = load(model, dtype, device)
        helper = None if draft is None else load(draft, dtype, device)
        theirs = Reference(target, helper)
        contestants = all_contestants(target, helper, theirs, new_tokens, level)
        ids = {name: encode_text_or_ids(target, text) for name, text in (prompts or PROMPTS).items()}
        take_turns(contestants, ids, repeats, target.decoder.device, say)
        used = pass_threads()
    finally:
        set_pass_threads(before)
    settings = {
        "weights": {x.name: count_weight_bytes(x.models) for x in contestants if x.models},
        "peak": measured_peak(target),
    }
    return {
        "machine": machine_name(target.decoder.device),
        "device": str(target.decoder.device),
        "threads": used,
        "torch": torch.__version__,
        "transformers": theirs.version,
        "theirs": str(without_weights(target.name)[0]),
        "set_aside": theirs.set_aside,
        "model": target.name,
        "draft": None if helper is None else helper.name,
        "dtype": str(target.decoder.dtype).removeprefix("torch."),
        "prompts": {name: len(x) for name, x in ids.items()},
        "new_tokens": new_tokens,
        "repeats": repeats,
        "level": level or "none",
        **compare_contestants(contestants),
        "settings": settings,
        "columns": columns(settings, [row for x in contestants for row in x.answers]),
    }


def compare_contestants(contestants: list[Contestant]) -> dict[str, Any]:
    """The contestants' figures, the ratios between them, and the cost of recording in percent of the time without.

    A ratio says on how many prompts the two wrote the `same_texts`: on the others it compares the times of different texts.
    """
    by_name = {x.name: x for x in contestants}
    plain = by_name["autoregressive"]
    ratios = []
    for name, quick, slow in PAIRS:
        if quick in by_name and slow in by_name:
            each = [by_name[slow].median_seconds(p) / by_name[quick].median_seconds(p) for p in plain.seconds]
            same = sum(
                by_name[slow].last_results[p].tokens == by_name[quick].last_results[p].tokens
                for p in plain.seconds
            )
            figures = {"ratio": statistics.median(each), "low": min(each), "high": max(each)}
            ratios.append({"name": name, **figures, "same_texts": same})
    free = by_name["autoregressive, nothing recorded"]
    cost = {}
    for kept in RECORDING:
        recorded = by_name[f"autoregressive, {kept}"]
        each = [100 * (recorded.median_seconds(p) / free.median_seconds(p) - 1) for p in plain.seconds]
        cost[kept] = statistics.median(each)
    return {
        "contestants": [x.record(plain) for x in contestants],
        "ratios": ratios,
        "recording_percent": cost,
    }
