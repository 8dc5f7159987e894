"""P-EAGLE heads of the library speculators beside ours: random heads of several forms, written by the library's own class.

    python benchmarks/fidelity/speculators_p_eagle.py CHECKOUT [--record FILE]

CHECKOUT is as in `speculators_heads.py`, and weights and states are made in the same way. The library's class has one forward,
for training, which reads groups behind random places of a text. Here it is given all places and all masks of each. A round
drafts 8 tokens behind the text by one pass, and they join the text. Ours keeps its cache from round to round; the library reads
all again. After 8 rounds 64 tokens and their logits are compared. Forms with a window are left out: in the library's training a
mask sees its whole group, which vLLM's servers do not let it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from official import Code, main, told
from speculators_heads import (
    FORMS,
    KEPT,
    LAYERS,
    TEXT,
    VOCAB,
    Chain,
    D,
    Library,
    arguments,
    numbers,
    record_form,
    target_spec,
)
from torch import Tensor

from decodescope.engine.model.heads.drafting.p_eagle import PEagleLayer
from decodescope.engine.model.heads.files import load_head

PLACES = ("src/speculators/models/peagle/core.py", "speculators/models/peagle/core.py")
MASK = 21  # the mask token
ROUNDS = 8
TOKENS = 8  # that a round drafts
CHOSEN = (
    "plain", "plain, Qwen 3", "whole vocabulary", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output",
    "all norms", "two layers", "three layers, Qwen 3", "the usual layers", "five states, first and last",
    "rotation llama3", "biases",
)  # fmt: skip


def read_states(places: Any, count: int) -> Tensor:
    """float32 [count, places * d]: the target's states of the first tokens of a text, at these places."""
    return torch.cat([numbers(f"state {x}", (count, D)) for x in places], -1)


@torch.inference_mode()
def our_chain(folder: Path, rounds: int = ROUNDS) -> Chain:
    """Our tokens of these rounds of the head in `folder`, with its cache, which drops the masks after each round."""
    head = load_head(folder, target_spec(), "p_eagle")
    assert isinstance(head, PEagleLayer) and head.own_embed is not None
    table, store = head.own_embed, head.store()
    head = head.pack_weights()
    tokens, rows, ids = list(TEXT), list[Tensor](), head.ids
    mask = head.mask_pair(table)
    for _ in range(rounds):
        count = len(tokens) - 1
        features = head.enter(read_states(head.places(LAYERS), count))[store.n :]
        out = head.group(features, table[torch.tensor(tokens[1 + store.n :])], mask, store, TOKENS)
        store.commit(range(len(features)))
        rows.append(head.choices(out, head.own_vocabulary))
        tokens += ids[rows[-1].argmax(-1)].tolist()
    return Chain(tokens[len(TEXT) :], torch.cat(rows))


class PEagleLibrary(Library):
    """The library's classes for P-EAGLE."""

    def __init__(self, source: Path) -> None:
        super().__init__(source)
        from speculators.models.peagle import core
        from speculators.models.peagle.config import PEagleSpeculatorConfig

        self.module, self.net, self.config = core, core.PEagleDraftModel, PEagleSpeculatorConfig
        self.around.algorithm = "peagle"
        core.compute_metrics = lambda **_: (None, {})  # the loss, which asks for a compiler

    def build(self, family: str, layer: Mapping[str, Any], top: Mapping[str, Any]) -> Any:
        """The library's net of this form, with our numbers."""
        return super().build(family, layer, {"mask_token_id": MASK, **top})

    def guess(self, net: Any, states: Tensor, tokens: list[int]) -> Tensor:
        """Logits [TOKENS, kept] behind the last of the pairs of `states` [n, W] and `tokens`, by the library's forward."""
        n, seen = len(states), list[Tensor]()
        length = n + TOKENS - 1  # a group's last mask lies so far on
        depth = torch.arange(TOKENS).repeat_interleave(length)
        anchor = torch.arange(length).repeat(TOKENS)
        inside = anchor + depth < length
        self.module.generate_cod_sample_indices = lambda **_: (anchor[inside], depth[inside])
        hook = net.lm_head.register_forward_hook(lambda _, __, out: seen.append(out[0]))
        ids = torch.tensor([tokens + [0] * (TOKENS - 1)])
        wide = torch.cat([states, states.new_zeros(TOKENS - 1, states.shape[1])])[None]
        net(wide, ids, torch.zeros_like(ids), verifier_last_hidden_states=wide[..., :D], num_depths=TOKENS)
        hook.remove()
        return seen[0][anchor[inside] == n - 1]

    @torch.inference_mode()
    def chain(self, net: Any) -> Chain:
        """The library's tokens of all rounds, each read from the text's beginning."""
        places = net.config.eagle_aux_hidden_state_layer_ids or [2, LAYERS // 2, LAYERS - 3]
        ids, tokens, rows = KEPT if net.use_draft_vocab else list(range(VOCAB)), list(TEXT), list[Tensor]()
        for _ in range(ROUNDS):
            rows.append(self.guess(net, read_states(places, len(tokens) - 1), tokens[1:]))
            tokens += [ids[i] for i in rows[-1].argmax(-1).tolist()]
        return Chain(tokens[len(TEXT) :], torch.cat(rows))


def compare(args: argparse.Namespace) -> None:
    """Write, read, draft with both, and print."""
    code = Code(args.checkout, *PLACES)
    library = PEagleLibrary(args.checkout / code.place.partition("speculators/")[0])
    rows, recorded = [], {}
    with tempfile.TemporaryDirectory() as home:
        for form in CHOSEN:
            family, layer, top = FORMS[form]
            net, folder = library.build(family, layer, top), Path(home) / form
            net.save_pretrained(folder)
            theirs, ours = library.chain(net), our_chain(folder)
            same = sum(x == y for x, y in zip(theirs.tokens, ours.tokens, strict=True))
            apart = float((theirs.logits - ours.logits).abs().max())
            rows.append([form, len(set(theirs.tokens)), same, f"{apart:.1e}"])
            recorded[form] = record_form(folder, net, theirs)
    told(code, ("form", "different tokens", f"same of {ROUNDS * TOKENS}", "logits apart"), rows)
    if args.record:
        args.record.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    sys.exit(main(compare, arguments(__doc__)))
