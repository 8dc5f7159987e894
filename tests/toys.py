"""Toy models of `decodescope.testing.toys`, with the settings under which each component does something on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch as torch
from entries import entry

from decodescope.engine import Method as Method
from decodescope.engine import Session as Session
from decodescope.engine.core.component import registry
from decodescope.engine.model.forward.feed import Feed as Feed
from decodescope.engine.session.load import Model as Model
from decodescope.testing.toys import (
    LETTERS as LETTERS,
)
from decodescope.testing.toys import (
    LEVELS as LEVELS,
)
from decodescope.testing.toys import (
    LIVELY as LIVELY,
)
from decodescope.testing.toys import (
    LONG as LONG,
)
from decodescope.testing.toys import (
    PROMPT as PROMPT,
)
from decodescope.testing.toys import (
    SHAPES as SHAPES,
)
from decodescope.testing.toys import (
    SPEC as SPEC,
)
from decodescope.testing.toys import (
    Heads as Heads,
)
from decodescope.testing.toys import (
    Letters as Letters,
)
from decodescope.testing.toys import (
    blocks as blocks,
)
from decodescope.testing.toys import (
    both as both,
)
from decodescope.testing.toys import (
    by_type as by_type,
)
from decodescope.testing.toys import (
    company as company,
)
from decodescope.testing.toys import (
    decode as decode,
)
from decodescope.testing.toys import (
    decoder as decoder,
)
from decodescope.testing.toys import (
    draft as draft,
)
from decodescope.testing.toys import (
    due as due,
)
from decodescope.testing.toys import (
    fed as fed,
)
from decodescope.testing.toys import (
    finished as finished,
)
from decodescope.testing.toys import (
    fitting as fitting,
)
from decodescope.testing.toys import (
    greedy as greedy,
)
from decodescope.testing.toys import (
    heads as heads,
)
from decodescope.testing.toys import (
    helpers as helpers,
)
from decodescope.testing.toys import (
    in_blocks as in_blocks,
)
from decodescope.testing.toys import (
    in_raster as in_raster,
)
from decodescope.testing.toys import (
    in_step as in_step,
)
from decodescope.testing.toys import (
    made_by as made_by,
)
from decodescope.testing.toys import (
    method as method,
)
from decodescope.testing.toys import (
    model as model,
)
from decodescope.testing.toys import (
    noisy as noisy,
)
from decodescope.testing.toys import (
    pair as pair,
)
from decodescope.testing.toys import (
    prompts as prompts,
)
from decodescope.testing.toys import (
    raster as raster,
)
from decodescope.testing.toys import (
    rough as rough,
)
from decodescope.testing.toys import (
    routed as routed,
)
from decodescope.testing.toys import (
    same_as_fresh as same_as_fresh,
)
from decodescope.testing.toys import (
    shaped as shaped,
)
from decodescope.testing.toys import (
    spoken as spoken,
)
from decodescope.testing.toys import (
    tagging as tagging,
)
from decodescope.testing.toys import (
    target as target,
)
from decodescope.testing.toys import (
    told as told,
)
from decodescope.testing.toys import (
    trace_of as trace_of,
)

TIMES = str(Path(__file__).resolve().parent / "methods" / "times.json")  # of blocks of the toy, made up
# ids: what the lively target wrote, and noise
DATASTORE = str(Path(__file__).resolve().parent / "methods" / "datastore.txt")

# Settings under which a component does something on a toy; [{}]: as it comes. One without knobs needs no entry.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "aggressive": [{}],
    "anpd": [{}],
    "blockwise": [{}],
    "chains": [{}],
    "llma": [{}],
    "draft_model": [dict(length=3), dict(length=8), dict(length=3, width=3)],
    "layer_skip": [
        dict(ratio=0.5, stop=0.0),
        dict(ratio=0.9, stop=0.3, length=6),
        dict(skip="a1", siblings=True),
    ],
    "medusa": [dict(nodes=8), dict(nodes=1)],
    "hydra": [dict(nodes=8), dict(nodes=20)],
    "mlp_speculator": [dict(kept=4), dict(branching="3,2", kept=1), dict(branching="2,2,2", kept=8)],
    "redrafter": [dict(width=4), dict(width=1, length=4), dict(width=5, length=2, top=2)],
    "ppd": [dict(rows="16"), dict(rows="8"), dict(rows="32")],
    "bita": [dict(), dict(nodes=1), dict(nodes=8)],
    "look_ahead_tokens": [dict(), dict(where="everywhere"), dict(length=2, where="everywhere")],
    "eagle": [dict(nodes=8), dict(nodes=1), dict(nodes=25, depth=2)],
    "eagle2": [
        dict(nodes=8, width=3),
        dict(nodes=1),
        dict(nodes=12, depth=2),
        dict(nodes=6, width=1, depth=6),
    ],
    "eagle3": [dict(nodes=8, width=3), dict(nodes=1), dict(nodes=20, depth=3)],
    "fspad": [dict(nodes=8, width=3), dict(nodes=1), dict(nodes=12, depth=2)],
    "parallelspec": [
        dict(nodes=8, width=3),
        dict(nodes=1, k=1),
        dict(nodes=12, depth=5, k=2),
        dict(nodes=9, width=1, k=4),
    ],
    "clover": [dict(nodes=8), dict(nodes=20)],
    "kangaroo": [dict(length=4, stop=0.0), dict(length=5, stop=0.5)],
    "s2d": [dict(length=4, thresholds=[0.5]), dict(length=3, exits=[1, 2], thresholds=[0.4], heads="exits")],
    "early_exit": [
        dict(length=4, layers=1),
        dict(criterion="confidence_exit threshold=0.5 first=1", stop=0.2),
    ],
    "swift": [
        dict(window=3, ratio=0.5, length=4, stop=0.2),
        dict(window=2, ratio=0.5, stop=0, bayes=2, siblings=False),
    ],
    "prompt_lookup": [dict(length=4, ngram=2), dict(length=12, ngram=1, match="first")],
    "lookahead": [
        dict(window=4, ngram=3, guesses=6, from_prompt=True),
        dict(window=5, ngram=4),
        dict(window=3, ngram=2, guesses=3),
    ],
    "sjd": [dict(window=4), dict(window=3, refill="repeat"), dict(window=1)],
    "rest": [dict(datastore=DATASTORE, nodes=12, shortest=1), dict(datastore=DATASTORE, nodes=1, longest=3)],
    "aded": [dict(datastore=DATASTORE, iterations=40, kept=6), dict(iterations=9, depth=2)],
    "trie": [dict(nodes=12, length=4), dict(nodes=40, query=3, most=8, weight=0.5), dict(nodes=1)],
    "token_recycling": [dict(nodes="16"), dict(nodes="80", from_prompt=False)],
    "sequoia": [dict(nodes=8, depth=4), dict(nodes=12, depth=3, rates="measured")],
    "dyspec": [dict(nodes=8), dict(nodes=12, length=3)],
    "rsd_c": [dict(branching="3,2,1"), dict(branching="1,1,1")],
    "specinfer": [
        dict(models=2, branching="2,1,1"),
        dict(branching="1,2,1"),
        dict(models=3, branching="1,1"),
    ],
    "rasd": [
        dict(datastore=DATASTORE, shortest=1, nodes=6, depth=3, first=5),
        dict(width=1, nodes=2, shortest=1, retrieved=4),
    ],
    "propd": [
        dict(tree="token_recycling nodes=16", layers=1, top=4),
        dict(tree="trie nodes=40, most=8", layers=2, top=6),
    ],
    "online": [dict(length=3, every=1, rate=0.01), dict(length=6, every=3, keep=4, window=16, loss="jsd")],
    "staged": [
        dict(length=5, guess=3),
        dict(length=4, guess=2, table="lookup", ngram=2),
        dict(length=3, guess=0),
    ],
    "rsd_s": [dict(width=3, length=3), dict(width=1, length=4)],
    "leniency": [{}],
    "typical": [{}],
    "lantern": [{}, dict(nearest=8, delta=0.3)],
    "judge": [dict(threshold=0.7), dict(threshold=0.5), dict(threshold=1.0)],
    "heuristic": [dict(), dict(grow=4, shrink=2, most=6)],
    "confidence": [dict(threshold=0.6, most=6), dict(threshold=0.3, tune=False)],
    "specdec_pp": [dict(h=0.7, most=6), dict(h=0.4)],
    "cerberus": [dict(least=0.4), dict(least=0.85)],
    "goodput": [dict(probe=1), dict(batch=64, most=4, probe=2)],
    "adakv": [dict(chosen=5, window=3, reach=1)],
    "fastgen": [
        dict(recover=0.6, sinks=2, frequent=0.2, near=0.1),
        dict(recover=0.3, sinks=1, frequent=0.1, near=0.1),
    ],
    "d2o": [dict(heavy=5, recent=4, sinks=2), dict(heavy=5, recent=4, sinks=0, merge_norm="code", floor=0.2)],
    "duo_attention": [dict(streaming=0.5, sinks=2, recent=6), dict(retrieval="0.0 2.0", sinks=0, recent=4)],
    "ems": [
        dict(centres=5, recent=3, window=4, reach=1),
        dict(centres=4, recent=2, similarity=0.2, covered=0.8),
    ],
    "expected_attention": [dict(sinks=2, chosen=6, future=8)],
    "h2o": [dict(heavy=4, recent=4), dict(heavy=0, recent=3), dict(heavy=3, recent=4, oracle=True)],
    "kvzip": [dict(sinks=2, chosen=5, window=3, chunk=15, lead=2)],
    "speckv": [
        dict(chosen=4, window=3, lookahead=6),
        dict(chosen=3, window=5, lookahead=3, reduce="mean", reach=0),
    ],
    "key_norm": [dict(short=5, recent=3)],
    "pyramidkv": [dict(chosen=5, window=3)],
    "snapkv": [dict(chosen=4, window=3), dict(chosen=3, window=5, reach=0, pool="max")],
    "quest": [dict(entries=48, dense=1)],
    "scissorhands": [dict(pivotal=6, recent=3, window=9), dict(pivotal=5, recent=2, window=6, drop=0.0)],
    "lm_infinite": [
        dict(start=2, window=6),
        dict(start=0, window=4),
        dict(start=2, window=6, middle=2, away=4, above=1),
    ],
    "streaming_llm": [dict(sinks=2, recent=6), dict(sinks=0, recent=4)],
    "tidal_decode": [dict(k=6, start=0, again=0), dict(k=9, start=0, again=1), dict(k=6, start=1, again=0)],
    "tova": [dict(size=6)],
    "window": [dict(size=6)],
    "specpc": [dict(keep=8, window=3, kernel=3, neighbours=3), dict(keep=6, window=2, lookahead=3, layer=0)],
    "selective_context": [dict(ratio=0.4), dict(ratio=0.5, scorer="target", reads="prompt", unit="token")],
    "llmlingua": [dict(rate=0.6), dict(rate=0.4, segment=8, scorer="target", coarse=False)],
    "color": [dict(), dict(rate=0.3, unit="phrase", question="none")],
    "cot_influx": [dict(), dict(rate=0.3, instruction=True, all_tokens=True)],
    "gemfilter": [dict(keep=6, kernel=3), dict(keep=10, layer=2)],
    "compress_then_prompt": [dict(), dict(use=False)],
    "ntk_attention": [dict(), dict(strength=0.0)],
    "gear": [
        dict(group=4, buffer=4, sparsity=0.1, rank=2, later=2),
        dict(group=4, buffer=8, bits="4", sparsity=0.0, rank=1, later=0, outliers="first"),
    ],
    "head_svd": [
        dict(first=8, buffer=4),
        dict(first=12, buffer=5, directions=0.4),
        dict(first=4, buffer=4, together=1),
    ],
    "minicache": [dict(buffer=4), dict(buffer=5, start=0, t=0.3, retention=0.3)],
    "kivi": [dict(group=4, residual=4), dict(bits="4", group=4, residual=8)],
    "entropy_exit": [dict(threshold=1.0, first=1), dict(thresholds="0.5,2.0", over="top", first=1)],
    "normalized_entropy_exit": [dict(threshold=0.5, first=1)],
    "patience": [dict(patience=1, first=1)],
    "past_future": [dict(threshold=0.5, first=1)],
    "free": [dict(threshold=0.05, first=1, max_pending=2), dict(threshold=0.05, first=1, max_pending=8)],
    "saturation": [dict(threshold=0.8, first=1)],
    "vote": [dict(votes=1.2, power=0.4, first=1)],
    "hash_exit": [dict(first=1, buckets=3), dict(first=1, buckets=2, by="random", seed=5)],
    "row_pruning": [dict(keep=0.5, at=[1]), dict(keep=0.7, at=[1, 2])],
    "magic_pyramid": [dict(keep=0.5, at=[1], threshold=0.5, first=1)],
    "layer_plan": [dict(skip=["l1"]), dict(skip=["a2", "f0"])],
    "trigrams": [dict(), dict(layers=2, kilobytes=1), dict(heads="trigrams", kilobytes=0)],
    "skip_layer": [dict(threshold=0.4), dict(threshold=0.2, gap="absent")],
    "skipdecode": [dict(least=1, horizon=12), dict(least=2, horizon=5, warmup=0)],
    "ffn_skip": [
        dict(threshold=0.3, warmup=0, cold_start=0, cold_end=0),
        dict(threshold=-1.0, warmup=3, cold_start=0, cold_end=1),
    ],
    "confidence_exit": [
        dict(threshold=0.6, first=1),
        dict(criterion="state", threshold=0.5, first=1),
        dict(criterion="meta", threshold=0.55, first=1, heads="exits"),
        dict(criterion="oracle", first=1),
    ],
    "beam": [dict(width=3), dict(width=3, plan="flatten", block=16)],
    "contrastive_search": [dict(k=4), dict(k=13, alpha=0.9)],
    "diverse_beam": [dict(width=4, groups=2), dict(width=6, groups=3, strength=1.5, plan="node")],
    "encode_once": [{}],
    "planned": [dict(tests="271\n1", rollouts=10), dict(tests="324108695620314696\n1", k=5, rollouts=8)],
    "exact_extract": [dict(end="7"), dict(end="2", longest=5, chunk=3, normal=True)],
    "apar": [dict(fork="4", child="7"), dict(fork="9", child="0", most=3)],
    "jump_coder": [dict(newline="2", tau=0.0, masks=1, like=1.0)],
    "edit_tags": [dict(block=8), dict(block=5, rounds=9, sure=0.3, draft="3 9 2 4")],
    "skeleton": [dict(ask="3 5 7")],
    "label_parallel": [dict(labels="3\n5", count="3 {label} 7")],
    "lexical_units": [dict(beta=0.3, rows=3), dict(beta=0.0, rows=2, repeats=True, placeholder="5")],
    "superposed": [
        dict(alpha=0.3, temperature=1.0, datastore=DATASTORE),
        dict(drafts=2, alpha=0.0, temperature=0.5),
    ],
    "joint_tokens": [dict(threshold=0.1, datastore=DATASTORE), dict(threshold=0.2, tokens=2, weight=0.0)],
    "pearl": [dict(), dict(machine="a100-80g"), dict(overlap=True)],
    "predictive": [dict(), dict(layers=2, branches=1, heads="exits")],
    "speed": [dict(layers=1), dict(layers=1, heads="exits")],
    "samples": [dict(samples=3), dict(samples=3, plan="node")],
    "aligned": [dict(samples=3)],
    "consensus": [dict(samples=3), dict(samples=4, measure="edit"), dict(samples=5, measure="exact")],
    "jacobi": [
        dict(block=4),
        dict(block=7, guess="random"),
        dict(block=0, guess="prompt"),
        dict(block=5, guess="pad", length=20),
    ],
    "switch": [{}],
    "cascade": [{}],
    "answer_confidence": [dict(tau=0.2), dict(tau=0.9)],
    "trained_confidence": [dict(tau=0.2), dict(tau=0.9)],
    "expected_cost": [dict(tau=0.0), dict(tau=1e6, length=4)],
    "agreement": [dict(tau=0.4, samples=2), dict(tau=1.1, samples=2, second="")],
    "references": [
        dict(tau=0.4, pairs='{"question": "3 1", "answer": "4 1", "right": true}'),
        dict(tau=0.9, pairs='{"question": "3 1", "answer": "4 1", "right": false}'),
    ],
    "entropy": [dict(tau=1.0, window=2, stay=2), dict(tau=1.2, stay=1, start="small", reset=True, shift=0.2)],
    "fallback": [dict(tau=0.5, rollback=1.0, length=4), dict(tau=0.0, rollback=0.0, length=3)],
    "masked": [
        *(dict(block=8), dict(block=5, cache="prefix"), dict(block=8, cache="dual")),
        dict(block=8, grammar='start: ("3" | "4" "6"? | "5" start "8" | "9")+'),
    ],
    "zipar": [dict(window=2), dict(window=5)],
    "randar": [dict(steps=9), dict(steps=12, order="raster")],
    "low_confidence": [dict(steps=3)],
    "random": [dict(steps=3)],
    "mask_predict": [dict(steps=3)],
    "threshold": [dict(tau=0.5), dict(factor=1.0)],
    "explore": [dict(tau=0.6, beyond=0.0), dict(tau=0.6, span=3, tries=3, least=4)],
    "learn2pd": [dict(steps=8, accept=0.55), dict(steps=3, cut=False)],
    "local_leap": [dict(tau=0.7, relaxed=0.4, radius=2)],
    "contrastive": [dict(alpha=0.05, strength=0.5), dict(alpha=0.3, temperature=1.0)],
    "rapid": [
        dict(budget=8, window=3, query=3, strength=20.0),
        dict(budget=9, window=4, query=2, strength=8.0, alpha=0.4),
    ],
    "nest": [
        dict(datastore=DATASTORE, neighbours=100, window=9, temperature=0.2, alpha=0.85),
        dict(datastore=DATASTORE, neighbours=40),
    ],
    "grammar": [dict(text="[a-l]{40}"), dict(text='start: "a" start "b" | /[c-l]+/', dialect="lark")],
    "int8": [dict(head=True), {}],
    "int4": [dict(group=32), dict(group=32, head=True)],
    "codes": [dict(bits=3), dict(bits=2, group=16, head=True)],
    "finequant": [{}, dict(shrink=1.0, head=True)],
    "head_sensitivity": [dict(cut=0.3, tokens=128, rounds=2)],
    "head_subset": [dict(keep=7, steps=2)],
    "head_gates": [dict(price=20.0, steps=4, rate=1.0, start=0.5)],
    "cut_layers": [dict(skip=["a1", "f0"]), dict(skip=["l2"])],
    "evopress": [
        dict(offspring=2, generations=1, first=32, last=32),
        dict(whole=True, generations=1, staged=False, last=32),
    ],
    "width_gates": [dict(cut=0.4, columns=8, steps=2), dict(cut=0.2, columns=16, rank=2, steps=2, start=0.0)],
    "latency_fit": [dict(faster=1.6, times=TIMES, tokens=256, trials=1, judged=64)],
    "sparse_nm": [{}, dict(keep=1, head=True)],
    "pv_tuning": [dict(steps=1), dict(bits=4, group=16, steps=1)],
    "temperature": [dict(temperature=0.8)],
    "top_k": [dict(k=4)],
    "top_p": [dict(p=0.7)],
    "min_p": [dict(share=0.2)],
    "mirostat": [dict(target=1.5, rate=0.3)],
    "mirostat1": [dict(target=1.5, ranks=10)],
    "locally_typical": [dict(tau=0.5)],
    "momentum": [dict(), dict(k=13, alpha=0.0, forbid=3)],
    "repetition_penalty": [{}],
}


def settings_of(kind: str, name: str) -> list[dict[str, Any]]:
    """The settings above of one component; without knobs there is only one."""
    return entry(SETTINGS, name, "SETTINGS of tests/toys.py") if registry(kind)[name].params() else [{}]


def variants(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, settings) of every registered component of `kind`, in every setting above."""
    return [(name, settings) for name in registry(kind) for settings in settings_of(kind, name)]


def representatives(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, settings) of every registered component of `kind`, in the first setting above."""
    return [(name, settings_of(kind, name)[0]) for name in registry(kind)]
