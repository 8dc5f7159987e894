"""Added tokens: what the files next to tokenizer.json add to it. They are read as the fast tokenizers of transformers 5 do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .folder import LoadError, read_json

CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
AGAIN = "save the tokenizer again with transformers"

Token = dict[str, Any]  # an added token as tokenizer.json writes it, without its id


@dataclass
class Additions:
    """Tokenizer data in addition to tokenizer.json.

    config:   tokenizer_config.json, with what special_tokens_map.json overrides
    declared: added token -> (the id that a file gives it, that file)
    changed:  whether the table of tokenizer.json was changed
    """

    config: dict[str, Any]
    declared: dict[str, tuple[int, str]] = field(default_factory=dict)
    changed: bool = False
    remarks: list[str] = field(default_factory=list)


def add_missing_tokens(folder: Path, table: Any, config: dict[str, Any]) -> Additions:
    """Add to `table`, the contents of tokenizer.json, all tokens that the folder's other files name. Raises LoadError."""
    entries = table.get("added_tokens") if isinstance(table, dict) else None
    own = {
        x["content"]: x for x in entries or () if isinstance(x, dict) and isinstance(x.get("content"), str)
    }
    if len(own) != len(entries or ()) or not isinstance(table, dict):
        return Additions(config)  # the tokenizers library reports the problem
    more = Additions(config)
    more.declared = {
        x: (entry["id"], "tokenizer.json") for x, entry in own.items() if isinstance(entry.get("id"), int)
    }
    given = config.get("added_tokens_decoder") is not None
    if not given:
        more.config = _merge_special_tokens_map(config, read_json(folder, MAP) or {})
    named, more.remarks = _parse_named_tokens(more.config)
    tokens = _decoder_tokens(folder, config) if given else _legacy_tokens(folder, named, own, more.config)
    marks = {x["content"] for x in named.values()}
    for at, token in sorted(tokens.items()):
        ours = more.declared.setdefault(token["content"], (at, CONFIG if given else ADDED))[0]
        if ours != at:
            what = f"{token['content']!r} has the id {at} in its {CONFIG if given else ADDED} and {ours} in its tokenizer.json"
            more.remarks.append(f"{what}: {ours} holds.")
            if not given:
                continue
        _put_token(table, own, {**token, "special": token["special"] or token["content"] in marks}, more)
    if not given:
        for content in [x for x in own if x in marks and not own[x].get("special")]:
            _put_token(table, own, {**own[content], "special": True}, more)
    else:
        more.remarks += _conflict_remarks(folder, table, more)
    others = [("extra_special_tokens", x) for x in _unnamed_tokens(folder, more.config)]
    for key, token in [*((key, {**x, "special": True}) for key, x in named.items()), *others]:
        if token["content"] and token["content"] not in own:
            _put_token(table, own, token, more)
            if token["content"] not in _vocabulary(table):
                more.remarks.append(
                    f"{key} {token['content']!r} is in no vocabulary of its folder: it becomes a new one."
                )
    return more


def named_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Name -> text of the special tokens that have one ("bos_token", ...). A chat template may use each by its name."""
    return {
        key: token["content"] for key, token in _parse_named_tokens(config)[0].items() if token["content"]
    }


def is_token(key: str, value: Any) -> bool:
    """True if an entry of tokenizer_config.json names a special token."""
    return key in NAMED or (key.endswith("_token") and isinstance(value, str | dict))


def _parse_named_tokens(config: dict[str, Any]) -> tuple[dict[str, Token], list[str]]:
    """Name -> special token, and remarks on values that are no tokens. A dict of extra tokens names them too."""
    extra = config.get("extra_special_tokens")
    values = {x: y for x, y in config.items() if is_token(x, y)}
    values |= extra if isinstance(extra, dict) else {}
    tokens = {key: token for key, value in values.items() if (token := _parse_token(value)) is not None}
    odd = [key for key, value in values.items() if key not in tokens and value is not None]
    return tokens, [
        f"{key} {json.dumps(values[key])[:40]} in its {CONFIG} is no token, so it is left out." for key in odd
    ]


def _unnamed_tokens(folder: Path, config: dict[str, Any]) -> list[Token]:
    """The special tokens that have no name."""
    listed = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    if isinstance(listed, dict):
        return []
    tokens = [_parse_token(x) for x in listed] if isinstance(listed, list) else [None]
    if None in tokens:
        raise LoadError(f"{folder / CONFIG}: the extra special tokens are no list of tokens; {AGAIN}.")
    return [x for x in tokens if x is not None]


def _parse_token(value: Any) -> Token | None:
    """The added token of a value, which is its text, or its text with flags; None for anything else."""
    if isinstance(value, str):
        return {"content": value, **dict.fromkeys(FLAGS, False), "special": True}
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        return None
    flags = {x: value.get(x, False) for x in FLAGS}
    flags["normalized"] = value.get("normalized", not flags["special"])
    if not all(isinstance(x, bool) for x in flags.values()):
        return None
    return {"content": value["content"], **flags}


def _decoder_tokens(folder: Path, config: dict[str, Any]) -> dict[int, Token]:
    """Id -> token of `added_tokens_decoder`."""
    table, tokens = config["added_tokens_decoder"], dict[int, Token]()
    for at, value in table.items() if isinstance(table, dict) else [("", table)]:
        token = _parse_token(value) if isinstance(value, dict) else None
        if token is None or not (at.isascii() and at.isdigit() and len(at) < 10):
            raise LoadError(
                f"{folder / CONFIG}: added_tokens_decoder is no table of ids and tokens; {AGAIN}."
            )
        tokens[int(at)] = token
    return tokens


def _legacy_tokens(
    folder: Path, named: dict[str, Token], own: dict[str, Token], config: dict[str, Any]
) -> dict[int, Token]:
    """Id -> token of added_tokens.json, without those that tokenizer.json has under the same id."""
    special = {x["content"] for x in [*named.values(), *_unnamed_tokens(folder, config)]}
    tokens = {}
    for content, at in (read_json(folder, ADDED) or {}).items():
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < 10**9:
            raise LoadError(f"{folder / ADDED} is no table of tokens and ids; {AGAIN}.")
        if content not in own or own[content].get("id") != at:
            mark = content in special
            tokens[at] = {
                "content": content,
                **dict.fromkeys(FLAGS, False),
                "normalized": not mark,
                "special": mark,
            }
    return tokens


def _conflict_remarks(folder: Path, table: dict[str, Any], more: Additions) -> list[str]:
    """Remarks on values of the older files that contradict `added_tokens_decoder` and its neighbours, which take precedence."""
    vocab, remarks = _vocabulary(table), []
    known = {**(vocab if isinstance(vocab, dict) else {}), **{x: at for x, (at, _) in more.declared.items()}}
    for content, at in (read_json(folder, ADDED) or {}).items():
        if known.get(content) != at:
            holds = f"its {CONFIG} holds" if content in known else "it is left out"
            what = f"{content!r} has the id {json.dumps(at)[:40]} in its {ADDED} and {known.get(content, 'none')} elsewhere"
            remarks.append(f"{what}: {holds}.")
    for key, value in (read_json(folder, MAP) or {}).items():
        theirs, ours = _parse_token(value), _parse_token(more.config.get(key))
        if (
            is_token(key, value)
            and theirs is not None
            and (ours is None or ours["content"] != theirs["content"])
        ):
            remarks.append(
                f"{key} is {theirs['content']!r} in its {MAP} and not in its {CONFIG}, which holds."
            )
    return remarks


def _merge_special_tokens_map(config: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """The settings with those of special_tokens_map.json, which win. Its lists of extra tokens are joined."""
    merged = dict(config)
    if config.get("additional_special_tokens") and not config.get("extra_special_tokens"):
        merged["extra_special_tokens"] = merged.pop("additional_special_tokens")
    for key, value in table.items():
        listed = merged.get(key) or []
        if key == "extra_special_tokens" and isinstance(value, list) and isinstance(listed, list):
            merged[key] = [*listed, *(x for x in value if x not in listed)]
        else:
            merged[key] = (
                {**value, "special": True} if isinstance(value, dict) and "content" in value else value
            )
    return merged


def _put_token(table: dict[str, Any], own: dict[str, Token], token: Token, more: Additions) -> None:
    """Add a token to the table, or give one that it has these flags."""
    entry = own.get(token["content"])
    if entry is None:
        entry = own[token["content"]] = {"id": more.declared.get(token["content"], (0, ""))[0]}
        table["added_tokens"] = [*(table.get("added_tokens") or []), entry]
    elif all(entry.get(x) == token.get(x) for x in FLAGS):
        return
    entry |= token
    more.changed = True


def _vocabulary(table: dict[str, Any]) -> Any:
    """The pieces of the model in tokenizer.json: a container."""
    model = table.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    return {x[0] for x in vocab if isinstance(x, list) and x} if isinstance(vocab, list) else vocab or ()
