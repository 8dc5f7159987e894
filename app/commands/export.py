"""The command `export`: write a draft head in the layout of another project."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.engine.core.refusal import Refusal

from .shared.output import load_model, new_file_path, print_json, print_note

if TYPE_CHECKING:
    from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
    from decodescope.engine.session.load import Model


def head(args: argparse.Namespace) -> int:
    """Write the head, read it back, and print where it lies."""
    out = new_file_path(args.out, "OUT", "the head")
    from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
    from decodescope.engine.model.heads.files import load_head
    from decodescope.engine.model.heads.published.layout_writer import write_published

    kind = Eagle3Layer.kind
    heads = None if args.name == kind else {kind: args.name}
    model = load_model(args.model, args.dtype, args.device, heads)
    layer, decoder = _find_eagle3(model), model.decoder
    write_published(layer, out, args.layout, decoder, model.spec, decoder.dtype)
    again = load_head(out, model.spec, kind)
    assert isinstance(again, Eagle3Layer)
    if again.places(model.spec.n_layers) != layer.places(model.spec.n_layers):
        print_note(
            f"Note: {args.layout} counts layers by their outputs; read here, give it as {out}@layer_ids=outputs."
        )
    record = _record(out, args.layout, model)
    if args.json:
        print_json(record)
    else:
        print(f"{out}: an EAGLE-3 head for {model.name} in the layout of {args.layout}")
    return 0


def _find_eagle3(model: Model) -> Eagle3Layer:
    """The EAGLE-3 head that was loaded with the model. Raises Refusal if there is none."""
    from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
    from decodescope.engine.model.heads.files import missing_reason

    kind = Eagle3Layer.kind
    layer = model.decoder.heads.get(kind)
    if not isinstance(layer, Eagle3Layer):
        raise Refusal(missing_reason(kind, model.spec, "a folder that holds such a head") or "")
    return layer


def _record(out: Path, layout: str, model: Model) -> dict[str, object]:
    """What was written, as data."""
    files = {x.name: x.stat().st_size for x in sorted(out.iterdir())}
    return {"folder": str(out), "layout": layout, "model": model.name, "files": files}
