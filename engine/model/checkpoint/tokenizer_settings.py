"""Settings of a tokenizer that a run does not follow: each is named in a sentence where it would change a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from decodescope.engine.core.spec import ModelSpec

from .added_tokens import is_token
from .keys import Config, unread_key_remarks

CONFIG = "its tokenizer_config.json"
FILE = "its tokenizer.json"
SHOWN = 3  # tokens that are named
# keys of tokenizer_config.json that are read here or elsewhere
READ = (
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "added_tokens_decoder",
    "additional_special_tokens",
    "auto_map",
    "chat_control_tokens",
    "chat_template",
    "clean_up_tokenization_spaces",
    "extra_special_tokens",
    "fast_tokenizer_files",
    "model_max_length",
    "split_special_tokens",
)
# keys that change no id and no text: where files are, how batches are filled, what an answer is parsed into
HARMLESS = (
    "backend",
    "device_map",
    "errors",
    "from_slow",
    "init_inputs",
    "is_local",
    "legacy",
    "local_files_only",
    "max_len",
    "max_length",
    "merges_file",
    "model_input_names",
    "model_specific_special_tokens",
    "pad_to_multiple_of",
    "pad_token_type_id",
    "padding",
    "padding_side",
    "processor_class",
    "response_schema",
    "return_tensors",
    "spaces_between_special_tokens",
    "special_tokens_map_file",
    "stride",
    "tokenizer_file",
    "trim_offsets",
    "truncation",
    "truncation_side",
    "truncation_strategy",
    "trust_remote_code",
    "use_fast",
    "verbose",
    "vocab_file",
)


def settings_remarks(table: dict[str, Any], config: dict[str, Any], behind: bool) -> list[str]:
    """Remarks on settings in tokenizer_config.json. table: tokenizer.json;  behind: whether that puts a token after every
    text."""
    remarks = []
    if behind or config.get("add_eos_token") is True:
        what = f"{FILE} puts" if behind else "add_eos_token puts"
        remarks.append(f"{what} an end token behind every text; it is left out, because a prompt goes on.")
    prefix, holds = config.get("add_prefix_space"), _prefix_space(table)
    if isinstance(prefix, bool) and holds is not None and prefix != holds:
        remarks.append(f"add_prefix_space is {prefix} in {CONFIG} and {holds} in {FILE}: {holds} holds.")
    model = table.get("model")
    if (
        config.get("clean_up_tokenization_spaces") is True
        and isinstance(model, dict)
        and model.get("type", "BPE") != "BPE"
    ):
        remarks.append(
            "clean_up_tokenization_spaces is not followed: text is shown with every space that the model writes."
        )
    if config.get("split_special_tokens") is True:
        remarks.append(
            "split_special_tokens is not followed: the marks of a chat template are read as special tokens."
        )
    if not isinstance(config.get("chat_control_tokens") or [], list):
        remarks.append(f"chat_control_tokens in {CONFIG} is no list of tokens, so it is left out.")
    if config.get("fast_tokenizer_files"):
        remarks.append(f"fast_tokenizer_files is not followed: {FILE} is read.")
    if config.get("auto_map"):
        remarks.append(f"{CONFIG} names a program of its own (auto_map), which is not run: {FILE} is read.")
    return remarks + _unknown_key_remarks(config)


def _unknown_key_remarks(config: dict[str, Any]) -> list[str]:
    """A remark on keys of tokenizer_config.json that are not read. A false or empty key requests nothing: tokenizer.json
    defines how a text is split."""
    asked = {key: x for key, x in config.items() if x and not is_token(key, x) and key not in READ}
    return unread_key_remarks(
        Config(asked),
        "this tokenizer",
        f"{FILE} alone says how a text is split",
        HARMLESS,
        "tokenizer_config.json",
    )


def disable_dropout(table: Any) -> list[str]:
    """Switch off the dropout of merges in `table`, the contents of tokenizer.json; a remark if there was any."""
    model = table.get("model") if isinstance(table, dict) else None
    if not isinstance(model, dict) or not model.get("dropout"):
        return []
    rate, model["dropout"] = str(model["dropout"])[:40], None
    return [f"dropout is {rate} in {FILE}, which leaves out merges by chance: it is switched off."]


def out_of_range_remarks(
    spec: ModelSpec, added: Mapping[int, Any], stops: Iterable[int], config: dict[str, Any]
) -> list[str]:
    """Remarks on tokens and lengths that the tokenizer's files name and the model does not have.

    added: id -> text of the added tokens;  stops: ids that end a text;  config: tokenizer_config.json
    """
    ends, remarks = sorted(x for x in stops if x >= spec.vocab), []
    last = f"the model's ids end at {spec.vocab - 1}"
    if ends:
        remarks.append(f"no text can end with the id {_shorten_list(ends)}: {last}.")
    lost = [repr(added[x]) for x in sorted(added) if x >= spec.vocab]
    if lost:
        remarks.append(f"its added tokens {_shorten_list(lost)} cannot be read or written: {last}.")
    longest, positions = config.get("model_max_length"), spec.max_positions
    if isinstance(longest, int | float) and 0 < longest < positions:
        remarks.append(
            f"model_max_length in {CONFIG} is {longest:.0f}: a text may have {positions} tokens, as in config.json."
        )
    return remarks


def _shorten_list(values: list[Any]) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(map(str, values[:SHOWN])) + more


def _prefix_space(part: Any) -> bool | None:
    """True if tokenizer.json puts a space before a text; None if it has no such setting."""
    if isinstance(part, list):
        return next((x for x in map(_prefix_space, part) if x is not None), None)
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    if kind == "ByteLevel" and isinstance(part.get("add_prefix_space"), bool):
        return bool(part["add_prefix_space"])
    if kind == "Metaspace":
        return (
            part.get("prepend_scheme", "always") != "never"
            and part.get("add_prefix_space", True) is not False
        )
    if kind == "Prepend":
        return True
    inner = ("normalizer", "pre_tokenizer", "normalizers", "pretokenizers")
    return next((x for x in map(_prefix_space, map(part.get, inner)) if x is not None), None)
