"""Pairing: which models a method reads, whether they go together, and what they have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from decodescope.engine.core.arguments import Along
from decodescope.engine.core.component import registry
from decodescope.engine.core.roles import TARGET, WHOLE
from decodescope.engine.decoding.values.vocabulary_map import VocabularyMap

from .load import load_original
from .method import Method, MethodError

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
    from decodescope.engine.model.forward.decoder import Decoder
    from decodescope.engine.saved.file import SavedCache

    from .load import Model


class ModelInfo(Protocol):
    """The attributes that a model needs here; it need not be loaded yet."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def spec(self) -> ModelSpec:
        """Its shape."""
        ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What splits its text; None where it has none."""
        ...


SHOWN_MARKS = 5  # ids in a remark
R = TypeVar("R", bound=ModelInfo)


def pair_models(method: Method, model: Model, models: Mapping[str, Model]) -> dict[str, Model]:
    """Role -> model of all that `method` reads, the target first; `models` may hold more.

    Raises MethodError if its parts do not fit each other or their models, if one of these is missing, or if the models do
    not go together.
    """
    used = pair_unloaded_models(method, model, models)
    _check_same_device(used)
    check_calibration(method, used)
    return used


def check_calibration(method: Method, used: Mapping[str, Model]) -> None:
    """Raise MethodError if a knob's value was calibrated for another method, or on other models than these by role."""
    record = method.record()
    for kind, part in method.parts().items():
        for knob, chosen in part.calibrated.items():
            if why := chosen.method_conflict(kind, knob, record, used):
                raise MethodError(why)


def pair_unloaded_models(method: Method, model: R, models: Mapping[str, R]) -> dict[str, R]:
    """The same for models that need not be loaded yet; so the devices of the models are not checked."""
    method.check(model.spec, models)
    used = {TARGET: model, **{role: models[role] for role in method.lanes}}
    method.check_models({role: x.spec for role, x in used.items() if role != TARGET})
    check_same_tokens(used, method.own_tokens)
    reading: tuple[Any, ...] = (
        method.drafter,
        method.strategy,
        *method.sampler.in_order,
    )  # each family says it itself
    for part in reading:
        if part.reads_text and model.tokenizer is None:
            raise MethodError(
                f"{model.spec.name} has no tokenizer, so {part.name} cannot read its text; leave the text out."
            )
    return used


def check_reference(method: Method, reference: Along = True) -> None:
    """Raise MethodError where a full cache next to the target's, or the whole model, would show nothing."""
    strategy, policy = method.strategy, method.policy
    if reference and not strategy.uses & {"policy", "kv_compression"}:
        why = "does not read one text from its front to its end, so no model can read along"
        cache = "keeps every entry as it is, so a reference cache says nothing"
        raise MethodError(f"{strategy.name} {why if reference == 'model' else cache}: leave it out.")
    if reference == "model" and policy.needs_reference:
        own = "goes by the attention of a second, full cache of the target, and one of another model has other attention"
        raise MethodError(f"{policy.name} {own}: choose other knobs, or let the full cache read along alone.")


def reference_models(
    method: Method, model: Model, reference: Along, models: Mapping[str, Model]
) -> dict[str, Model]:
    """The reference model by its role: the model that the target was made from, given in `models` or loaded.

    Nothing unless `reference` asks for it. Raises MethodError where it would show nothing, LoadError.
    """
    check_reference(method, reference)
    if reference is True and model.spec.groups:
        cut = f"{model.name} lacks heads, so a reference with a full cache cannot measure the lost attention"
        raise MethodError(
            f'{cut}: let the model that it was made of read along, reference="model", or leave it out.'
        )
    if reference != "model":
        return {}
    used = {TARGET: model, WHOLE: models[WHOLE] if WHOLE in models else load_original(model)}
    check_same_tokens(used)
    _check_same_device(used)
    return {WHOLE: used[WHOLE]}


def reference_decoder(models: Mapping[str, Model]) -> tuple[Decoder | None, int]:
    """The decoder that runs as the reference, and the bytes of weights that are there for it alone.

    models: a run's models by role.

    None: the target itself with a full cache.
    """
    whole, own = models.get(WHOLE), models[TARGET]
    if whole is None:
        return None, 0
    decoder = whole.decoder
    return decoder.limit_vocab(common_vocabulary(models)), 0 if whole is own else whole.spec.weight_bytes(
        decoder.dtype.itemsize
    )


class OtherTokens(MethodError):
    """An id means other text in a further model than in the target."""


def check_same_tokens(models: Mapping[str, ModelInfo], own_tokens: Collection[str] = ()) -> None:
    """Raise MethodError (OtherTokens) if an id means other text in one of them than in the target.

    Ids that one of them lacks pad it to a round size, and are never chosen. Special tokens may have other names, as servers
    allow it: a draft that is wrong there is refused like any other. own_tokens: roles whose model may have another
    tokenizer; it has to share tokens with the target's.
    """
    target = models[TARGET]
    ours = target.tokenizer
    for role, other in models.items():
        theirs = other.tokenizer
        if (ours is None) != (theirs is None):
            raise MethodError(
                f"{target.name} and {other.name} cannot be compared, since one of them has no tokenizer; add its "
                "tokenizer.json."
            )
        if not (differs := differing_id(target, other)) or ours is None or theirs is None:
            continue
        if role not in own_tokens and not differing_marks(target, other):
            ways = " or ".join(_translating_drafters(role))
            other_way = f"the drafter {ways}, which translates, " if ways else ""
            raise OtherTokens(
                f"{other.name} cannot be the {role} model of {target.name}: their tokenizers differ at id "
                f"{differs[0]} ({differs[1]!r} against {differs[2]!r}). Use a model with the same tokenizer, {other_way}"
                f"or a method that needs no {role} model."
            )
        if role in own_tokens and not ours.shared_ids(theirs):
            raise OtherTokens(
                f"{other.name} cannot be the {role} model of {target.name}: their tokenizers have no token in common. Use "
                f"another {role} model, or a method that needs none."
            )


def differing_id(target: ModelInfo, other: ModelInfo) -> tuple[int, str | None, str | None] | None:
    """The first id that has another token in `other` than in `target`, with both tokens; None if there is none."""
    ours, theirs = target.tokenizer, other.tokenizer
    if ours is None or theirs is None or ours is theirs:
        return None
    return ours.same_ids(theirs, max(target.spec.vocab, other.spec.vocab))


def differing_marks(target: ModelInfo, other: ModelInfo) -> list[int]:
    """The ids at which both have special tokens of other names, or the target has none; empty if any other token differs too.

    A special token that only the target has would never be chosen beside this draft, so the text would change.
    """
    ours, theirs = target.tokenizer, other.tokenizer
    if ours is None or theirs is None:
        return []
    ids = ours.differing_ids(theirs, max(target.spec.vocab, other.spec.vocab))
    return ids if all(ours.is_mark_or_free(x) and x in theirs.marks for x in ids) else []


def _translating_drafters(role: str) -> list[str]:
    """The drafters that take a model of `role` with another tokenizer."""
    return [name for name, part in registry("drafter").items() if part.listed and role in part.own_tokens]


def vocabulary_maps(method: Method, models: Mapping[str, Model]) -> dict[str, VocabularyMap]:
    """Role -> the map between its ids and the target's, for the models of `method` with another tokenizer."""
    target = models[TARGET]
    others = {role: models[role] for role in method.own_tokens if differing_id(target, models[role])}
    vocab = common_vocabulary({role: x for role, x in models.items() if role not in others})
    return {
        role: VocabularyMap(target.tokenizer, x.tokenizer, vocab, x.decoder.vocab)
        for role, x in others.items()
        if target.tokenizer is not None and x.tokenizer is not None
    }


def vocabulary_remarks(method: Method, models: Mapping[str, ModelInfo]) -> list[str]:
    """For each model of `method` with another tokenizer, a sentence: how many tokens it has in common with the target, or
    which special tokens differ, if these are all."""
    target = models[TARGET]
    said = []
    for role, other in ((role, models[role]) for role in method.lanes if role in models):
        if not differing_id(target, other):
            continue
        if role in method.own_tokens and target.tokenizer and other.tokenizer:
            shared = len(target.tokenizer.shared_ids(other.tokenizer))
            said.append(
                f"{other.name} has another tokenizer than {target.name}: {shared:,} of its {other.tokenizer.vocab:,} tokens "
                f"({shared / other.tokenizer.vocab:.0%}) are tokens of both."
            )
        elif marks := differing_marks(target, other):
            shown = ", ".join(map(str, marks[:SHOWN_MARKS])) + (", ..." if len(marks) > SHOWN_MARKS else "")
            said.append(
                f"{other.name} has other special tokens than {target.name} (ids {shown}): a draft is often refused there."
            )
    return said


def _check_same_device(models: Mapping[str, Model]) -> None:
    """Raise MethodError if the models are on several devices. Their types may differ."""
    target = models[TARGET]
    for role, other in models.items():
        if other.decoder.device != target.decoder.device:
            here, there = target.decoder.device, other.decoder.device
            raise MethodError(
                f"{other.name} cannot be the {role} model of {target.name}: it lies on {there}, and {target.name} on {here}. "
                f"Load both with device={str(here)!r}."
            )


def common_vocabulary(models: Mapping[str, Model]) -> int:
    """How many ids all of them have; what one has beyond is padding."""
    return min(x.decoder.vocab for x in models.values())


def check_saved_cache(
    method: Method, model: Model, saved: SavedCache | None, prompt: Sequence[int]
) -> SavedCache | None:
    """Check the `saved` cache, if there is one.

    Raises MethodError if a run of `method` over `prompt` cannot go on from it: it is another model's, or a part needs the
    passes over its tokens, which nobody makes.
    """
    if saved is None:
        return None
    if saved.head.fingerprint != model.fingerprint:
        theirs = f"{saved.head.model} ({saved.head.fingerprint})"
        raise MethodError(
            f"the loaded cache is of {theirs}, and this is {model.name} ({model.fingerprint}): load that model."
        )
    if list(prompt[: len(saved.tokens)]) != saved.tokens:
        begins = f"the prompt does not begin with the {len(saved.tokens)} tokens of the loaded cache"
        raise MethodError(f"{begins}: leave the cache out, or give its prompt.")
    usual = Method()
    for part, other in (
        (method.prompt_compression, usual.prompt_compression),
        (method.policy, usual.policy),
        (method.kv_compression, usual.kv_compression),
    ):
        if not part.lossless:
            early = f"{part.name} works from the prompt's first pass on, and a loaded cache needs none"
            raise MethodError(f"{early}: choose {other.name}.")
    if method.adaptive_depth.reads:
        own = f"{method.adaptive_depth.name} reads the prompt by its own rule, and for a loaded cache all layers ran"
        raise MethodError(f"{own}: leave the cache out, or choose adaptive_depth all_layers.")
    if method.needs | method.drafter.pass_needs(model.spec, model.decoder.heads):
        asks = next(
            (x for kind, x in method.used_parts.items() if kind != "drafter" and x.needs), method.drafter
        )
        reads = (
            "a drafter that reads the text, such as prompt_lookup"
            if asks is method.drafter
            else f"another {asks.kind}"
        )
        raise MethodError(
            f"{asks.name} wants what passes over the prompt leave behind, and a loaded cache has none: choose {reads}, "
            "or read the prompt again."
        )
    return saved
