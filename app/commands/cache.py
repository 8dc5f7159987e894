"""The command `cache`: write a prompt's cache to a file, and continue from one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from decodescope.app.runs.threads import choose_threads
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.checkpoint.prompt_source import PromptSource

from .shared.output import format_bytes, new_file_path, print_json, print_note
from .shared.run import check_option_texts, decode_prompt, prompt_ids, special_token_notes
from .shared.texts import read_source

if TYPE_CHECKING:
    from decodescope.engine.saved.file import SavedCache
    from decodescope.engine.session.load import Model


def save(args: argparse.Namespace) -> int:
    """Read a prompt and write its cache; the exit code."""
    target = new_file_path(args.file, "OUT", "the cache", ".partial")
    source = read_source(args)
    check_option_texts((("--prompt", source.text),))
    from decodescope.engine.model.forward.executor import EngineFault
    from decodescope.engine.session.cache_files import save_cache
    from decodescope.engine.session.load import load as load_model

    model = load_model(args.model, args.dtype, args.device)
    if model.tokenizer is None:
        raise Refusal(
            f"{model.name} has no tokenizer.json, so it cannot read a text: add the file to its folder."
        )
    choose_threads(args, model)
    for text in [
        *(f"Note: {x}" for x in model.remarks),
        *special_token_notes(args, model, [source], decodes=False),
    ]:
        print_note(text)
    try:
        kept = save_cache(model, prompt_ids(model, source), target, args.quality)
    except EngineFault as fault:
        raise Refusal(str(fault)) from None
    full = kept.kv.numel() * model.decoder.dtype.itemsize
    if args.json:
        said = {"file": str(target), "tokens": len(kept.tokens), "model": model.name, "quality": args.quality}
        print_json({**said, **kept.record(), "kv_bytes": full})
    else:
        many = f"{len(kept.tokens)} tokens of {model.name} in {format_bytes(kept.nbytes)}"
        print(f"{target}: {many}, {kept.bits:.2f} bits a number; in memory {format_bytes(full)}")
    return 0


def load(args: argparse.Namespace) -> int:
    """Decode from a saved cache; the exit code."""

    def read(model: Model) -> tuple[list[int], SavedCache]:
        from decodescope.engine.session.cache_files import load_cache

        cache = load_cache(model, args.file)
        assert model.tokenizer is not None, "decoded refuses a model without one"
        more = model.tokenizer.encode_plain(args.prompt) if args.prompt else []
        return [*cache.tokens, *more], cache

    return decode_prompt(args, PromptSource(args.prompt), read)
