"""Keys of a config.json: which were read, which change no number, and a sentence about all others. No torch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from .folder import escape_unprintable

SHOWN = 5  # keys that a remark names
WORDS = 60  # characters of a key or a value that it shows

# Why a key changes no number that a net computes -> the keys.
REASONS: dict[str, tuple[str, ...]] = {
    "says who made the files, and with what": (
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "auto_map",
        "base_model_name_or_path",
        "has_no_defaults_at_init",
        "model_type",
        "name_or_path",
        "speculators_version",
        "tokenizer_class",
        "transformers.js_config",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
    ),
    "says how long a text may get, or what is returned with it; the user of a run chooses that": (
        "max_length",
        "max_new_tokens",
        "num_return_sequences",
        "output_scores",
        "return_dict_in_generate",
    ),
    "says in which type numbers were stored; the type of a run is chosen by the user": (
        "dtype",
        "torch_dtype",
        "use_bfloat16",
    ),
    "matters in training alone": (
        "attention_dropout",
        "embd_pdrop",
        "embed_requires_grad",
        "enable_sp_ulysses",
        "gradient_checkpointing",
        "hidden_dropout",
        "initializer_range",
        "mtp_loss_step_weights",
        "mtp_loss_weight",
        "ntp_loss_weight",
        "resid_pdrop",
        "router_aux_loss_coef",
        "ttt_steps",
    ),
    "says how a library computes the same numbers, or what it returns with them": (
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_experts_implementation",
        "attn_implementation",
        "cache_implementation",
        "chunk_size_feed_forward",
        "experts_implementation",
        "output_attentions",
        "output_hidden_states",
        "pretraining_tp",
        "return_dict",
        "tf_legacy_loss",
        "torchscript",
        "use_cache",
    ),
    "names ids of the tokenizer, or describes another task": (
        "bos_token_id",
        "decoder_start_token_id",
        "eos_token_id",
        "finetuning_task",
        "id2label",
        "label2id",
        "pad_token_id",
        "prefix",
        "problem_type",
        "sep_token_id",
        "task_specific_params",
    ),
}
HARMLESS = frozenset(chain.from_iterable(REASONS.values()))
# Keys that ask for nothing where they have this value.
OFF: dict[str, Any] = {
    "add_cross_attention": False,
    "attention_bias": False,
    "is_causal": True,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "is_llama_config": True,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "pruned_heads": {},
    "rope_interleaved": False,
    "spd_type": "pard",
    "tie_encoder_decoder": False,
    "use_bidirectional_attention": False,
    "use_mrope": False,
    "use_sliding_window": False,
}
# Settings of text generation, which old files repeat in config.json, at the values that change no text.
GENERATION: dict[str, Any] = {
    **dict.fromkeys(("do_sample", "early_stopping", "remove_invalid_values", "renormalize_logits"), False),
    **dict.fromkeys(
        ("diversity_penalty", "encoder_no_repeat_ngram_size", "min_length", "no_repeat_ngram_size"), 0
    ),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "min_new_tokens", "min_p"), 0),
    **dict.fromkeys(
        ("guidance_scale", "length_penalty", "num_beam_groups", "num_beams", "repetition_penalty"), 1
    ),
    **dict.fromkeys(("temperature", "top_p", "typical_p"), 1),
    "encoder_repetition_penalty": 1,
    "top_k": 50,
}
OFF |= GENERATION


class Config(Mapping[str, Any]):
    """A config.json, or a table inside one, that knows which of its keys were read: a key is read when its value is asked
    for. Its tables are Configs too."""

    def __init__(self, entries: Mapping[str, Any], place: str = "") -> None:
        self._entries, self._place = entries, place
        self._read: set[str] = set()
        self._tables: dict[str, Config] = {}
        self._joined: list[Config] = []
        self.skipped: set[str] = set()  # full names of the keys that change nothing, as another key decides

    @property
    def entries(self) -> Mapping[str, Any]:
        """What it holds, as plain data; this reads no key."""
        return self._entries

    @property
    def place(self) -> str:
        """What the names of its keys begin with; empty for a whole file."""
        return self._place

    def __getitem__(self, key: str) -> Any:
        value = self._entries[key]
        self._read.add(key)
        if not isinstance(value, Mapping):
            return value
        return self._tables.setdefault(key, Config(value, f"{self._place}{key}."))

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self._entries))

    def skip(self, *keys: str) -> None:
        """Count these keys as read: another key decides, so they change nothing."""
        self._read.update(keys)
        self.skipped.update(f"{self._place}{x}" for x in keys)

    def agree(self, key: str, value: Any) -> None:
        """Count `key` as read if it repeats the `value` that was read elsewhere."""
        if self._entries.get(key) == value:
            self._read.add(key)

    def skip_repeats(self, key: str, other: Config) -> None:
        """Count the table `key` as read as far as it repeats the values of `other`, or those next to it here."""
        if isinstance(self._entries.get(key), Mapping):
            table = self[key]
            for x in table:
                table.agree(x, other._entries.get(x, self._entries.get(x)))

    def join(self, other: Config) -> None:
        """Let the unread keys of `other`, which was made of tables of this one, count as unread here."""
        self._joined.append(other)

    @property
    def has_tables(self) -> bool:
        """True if there are tables inside; this reads no key."""
        return any(isinstance(x, Mapping) for x in self._entries.values())

    def find(self, names: Collection[str]) -> Iterator[tuple[str, Any]]:
        """(key, value) of all entries that have one of these names, in this table or in tables inside it. They count as read;
        the tables around them do not."""
        for key, value in self._entries.items():
            if key in names:
                yield f"{self._place}{key}", self[key]
            elif isinstance(value, Mapping):
                yield from self._tables.setdefault(key, Config(value, f"{self._place}{key}.")).find(names)

    def unread_keys(self) -> dict[str, Any]:
        """Key -> value of all keys that were not read. A key inside a table has the table's name before it; null counts as
        unset."""
        left: dict[str, Any] = {}
        for key, value in self._entries.items():
            if key in self._tables:
                left |= self._tables[key].unread_keys()
            elif key not in self._read and value is not None:
                left[f"{self._place}{key}"] = value
        for other in self._joined:
            left |= other.unread_keys()
        return left


@dataclass(frozen=True)
class KeyReading:
    """One key of a config.json, the names of the tables around it before it, and what was made of it."""

    key: str
    value: Any
    use: str


def key_readings(config: Config, harmless: Collection[str] = ()) -> list[KeyReading]:
    """All keys of `config` and of the tables in it, in the order of the file: used, left alone for a reason, or not read."""
    unread = config.unread_keys()
    why = {key: reason for reason, keys in REASONS.items() for key in keys}

    def use(key: str, value: Any) -> str:
        if key in config.skipped:
            return "changes no number: another key decides"
        owner = next(
            (x for x in unread if key == x or key.startswith(f"{x}.")), None
        )  # it, or a table around it
        if owner is None:
            return "used" if value is not None else "unset"
        last = owner.rpartition(".")[2]
        if last in why:
            return f"changes no number: it {why[last]}"
        if owner in harmless or (owner == key and _is_off(last, value)):
            return "changes no number with this value"
        return "not read"

    return [KeyReading(key, value, use(key, value)) for key, value in _leaves(config.entries, config.place)]


def _leaves(entries: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    for key, value in entries.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value


def unread_key_remarks(
    config: Config, where: str, then: str, harmless: Collection[str] = (), file: str = "config.json"
) -> list[str]:
    """One sentence that names the keys of `config` which were neither read nor are known to be harmless, with their values;
    none if there are no such keys. where: the owner of the config;  then: the consequence of not reading them."""
    odd = {
        k: x
        for k, x in config.unread_keys().items()
        if k not in HARMLESS and k not in harmless and not _is_off(k, x)
    }
    if not odd:
        return []
    named = [f"{key[:WORDS]} = {str(x)[:WORDS]}" for key, x in odd.items()][:SHOWN]
    named += [f"{len(odd) - SHOWN} more"] if len(odd) > SHOWN else []
    listed = f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
    return [
        escape_unprintable(
            f"The {file} of {where} gives {listed}, which {'are' if len(odd) > 1 else 'is'} not read: {then}."
        )
    ]


def _is_off(key: str, value: Any) -> bool:
    return key in OFF and type(value) in (type(OFF[key]), int, float) and value == OFF[key]
