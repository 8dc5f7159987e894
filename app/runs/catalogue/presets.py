"""Presets: named compositions as starting points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from decodescope.engine.core.roles import TARGET


@dataclass(frozen=True)
class Preset:
    """A named composition. says: what happens in a step, as a sentence; names, settings: as Method.from_names takes them;
    models: role -> name of the models that it is for; empty if it works with any"""

    title: str
    says: str
    names: Mapping[str, str | Sequence[str]]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)


NONE: Mapping[str, str] = MappingProxyType({})
GREEDY, WARMED = "greedy", "temperature"  # samplers that the page offers by themselves


def temperature_settings(temperature: Any) -> dict[str, dict[str, Any]]:
    """The settings of sampling at this temperature."""
    return {WARMED: {"temperature": temperature}}


WARMTH, RECORD = 0.8, r'\{"name": "[A-Z][a-z]{1,9}", "city": "[A-Z][a-z]{1,9}", "active": (true|false)\}'
NARROW, NARROW_DRAFT = {TARGET: "lab@int8"}, {TARGET: "lab", "draft": "lab@int4"}
# the result of a search for one block of each kind, on the weights of `lab` before its last training (`ae0fb9df92df3434`)
PRUNED = {TARGET: "lab@cut_layers skip=a6,f4"}
WARM = temperature_settings(WARMTH)
MASKED = {TARGET: "lab-mdm"}
CLLM = {TARGET: "lab+cllm"}
DIGITS = {TARGET: "lab-digits"}
RECALL = {TARGET: "lab-recall"}  # it looks things up
PRESETS: dict[str, Preset] = {
    "plain": Preset(
        "Plain greedy",
        "One token a step, the likeliest: what every other method is compared with.",
        {"drafter": "none", "sampler": ["greedy"]},
    ),
    "chain": Preset(
        "Draft model, chain",
        "A small model guesses five tokens one after another; the target checks all of them in one pass.",
        {"drafter": "draft_model", "sampler": ["greedy"]},
        {"drafter": {"max_draft_tokens": 5}},
    ),
    "int8": Preset(
        "Weights of 8 bits",
        "One token a step by the model in 8 bits a weight, multiplied as they are stored. The text changes.",
        {"drafter": "none", "sampler": ["greedy"]},
        models=NARROW,
    ),
    "int4_draft": Preset(
        "int4 draft, dense check",
        "The target in 4 bits a weight guesses five tokens, the whole target checks them in one pass: its own greedy text.",
        {"drafter": "draft_model", "sampler": ["greedy"]},
        {"drafter": {"max_draft_tokens": 5}},
        models=NARROW_DRAFT,
    ),
    "pruned": Preset(
        "Pruned, two blocks gone",
        "One token a step by the model without two of its sixteen blocks, which a search chose. The text changes.",
        {"drafter": "none", "sampler": ["greedy"]},
        models=PRUNED,
    ),
    "tree": Preset(
        "Sampled draft tree",
        "A small model draws a tree, three guesses at its root; the target checks every branch in one pass.",
        {"drafter": "draft_model", "sampler": ["temperature"]},
        {
            "drafter": {"max_draft_tokens": 5, "width": 3},
            **temperature_settings(0.5),
        },  # as in the example that the page opens with
    ),
    "online": Preset(
        "Draft model that learns",
        "The small model that guesses learns from each guess that the target rejected.",
        {"drafter": "online", "sampler": ["greedy"]},
    ),
    "pearl": Preset(
        "PEARL, two clocks",
        "A small model goes on guessing while the target checks: two clocks show the time that this saves.",
        {"strategy": "pearl", "drafter": "draft_model", "sampler": ["greedy"]},
    ),
    "confidence": Preset(
        "Draft model, until unsure",
        "A small model guesses until it is unsure of a token, so easy places get long drafts and hard ones short.",
        {"drafter": "draft_model", "schedule": "confidence", "sampler": ["greedy"]},
    ),
    "block": Preset(
        "Block verification",
        "The target accepts or rejects a drafted block as a whole, which accepts more than token by token.",
        {"drafter": "draft_model", "acceptance": "block", "sampler": ["temperature"]},
        {"drafter": {"max_draft_tokens": 5}, **WARM},
    ),
    "spectr": Preset(
        "Four chains, SpecTr",
        "A small model draws four chains; the target may accept any of them, and keeps its distribution.",
        {"drafter": "chains", "acceptance": "spectr", "sampler": ["temperature"]},
        WARM,
    ),
    "sequoia": Preset(
        "Sequoia tree",
        "A tree with the shape that pays most by the acceptance measured so far, drawn without replacement.",
        {"drafter": "sequoia", "sampler": ["temperature"]},
        WARM,
    ),
    "eagle": Preset(
        "EAGLE-2, dynamic tree",
        "A small head on the target's own states guesses a tree that grows where the head is sure.",
        {"drafter": "eagle2", "sampler": ["greedy"]},
    ),
    "typical": Preset(
        "EAGLE-2, typical acceptance",
        "EAGLE-2's tree, but a guess stays when the target finds it likely enough: more is accepted, the text may differ.",
        {"drafter": "eagle2", "acceptance": "typical", "sampler": ["temperature"]},
        WARM,
    ),
    "kangaroo": Preset(
        "Kangaroo",
        "The target's first layers and a small adapter guess until unsure; the other layers check.",
        {"drafter": "kangaroo", "sampler": ["greedy"]},
    ),
    "lookup": Preset(
        "Prompt lookup",
        "Tokens that followed the same words earlier in the text are the guess: no model drafts.",
        {"drafter": "prompt_lookup", "sampler": ["greedy"]},
    ),
    "recycling": Preset(
        "Token recycling",
        "Tokens that nearly won in earlier passes are guessed where the same token comes again.",
        {"drafter": "token_recycling", "sampler": ["greedy"]},
    ),
    "lookahead": Preset(
        "Lookahead",
        "A window of guesses rides every pass, and the n-grams that it completes are guessed later: no draft model.",
        {"drafter": "lookahead", "sampler": ["greedy"]},
    ),
    "layers": Preset(
        "Skipped layers",
        "The target itself guesses with some of its layers skipped, then checks with all.",
        {"drafter": "layer_skip", "sampler": ["greedy"]},
    ),
    "exit": Preset(
        "Early exit drafts",
        "The target itself guesses from an early layer, then runs the rest of its layers to check.",
        {"drafter": "early_exit", "sampler": ["greedy"]},
    ),
    "exit_lossy": Preset(
        "Early exit, unchecked",
        "A pass stops at the first layer that is half sure of its token; those above do not run. The text may differ.",
        {"drafter": "none", "adaptive_depth": "confidence_exit", "sampler": ["greedy"]},
        {"adaptive_depth": {"threshold": 0.5}},
    ),
    "exit_checked": Preset(
        "Early exit, checked",
        "The same rule drafts: where a pass stops is a guess, and the layers that it left out check six of them at once.",
        {"drafter": "early_exit", "sampler": ["greedy"]},
        {"drafter": {"criterion": "confidence_exit threshold=0.5"}},
    ),
    "ffn_skip": Preset(
        "FFN-SkipLLM",
        "Where a feed-forward block hardly turned the state, those above are not read; attention runs. The text may differ.",
        {"drafter": "none", "adaptive_depth": "ffn_skip", "sampler": ["greedy"]},
        {"adaptive_depth": {"threshold": 0.98, "warmup_tokens": 8}},
    ),
    "skipdecode": Preset(
        "SkipDecode, a staircase",
        "The later a token, the fewer layers it runs: eight at first, four from the 48th on. The text may differ.",
        {"drafter": "none", "adaptive_depth": "skipdecode", "sampler": ["greedy"]},
        {"adaptive_depth": {"min_layers": 4, "decay_horizon": 48}},
        models={TARGET: "lab+skipdecode"},
    ),
    "waiting": Preset(
        "FREE, sure tokens wait",
        "Sure tokens leave before layer four and wait; the next unsure one takes them along. The text may differ.",
        {"drafter": "none", "adaptive_depth": "free", "sampler": ["greedy"]},
        {"adaptive_depth": {"min_layers": 4, "threshold": 0.7}},
    ),
    "two_lanes": Preset(
        "Two models in turns",
        "A small model writes until it is unsure; the large one judges its block and writes on. The text may differ.",
        {"strategy": "switch", "router": "fallback", "sampler": ["greedy"]},
        {"router": {"tau": 0.5, "rollback_threshold": 2.0}},
    ),
    "entropy_turns": Preset(
        "Two models by entropy",
        "A small model writes while its distributions are narrow, and the large one at hard places. The text may differ.",
        {"strategy": "switch", "router": "entropy", "sampler": ["greedy"]},
        {"router": {"tau": 2.0, "min_turn_tokens": 4}},
    ),
    "three_answers": Preset(
        "Three answers, or ask on",
        "A small model answers three times; where these disagree the large one answers too. The text may differ.",
        {"strategy": "cascade", "router": "agreement", "sampler": ["temperature"]},
        {"router": {"samples": 3, "second_prompt_suffix": ""}, **temperature_settings(0.5)},
    ),
    "h2o": Preset(
        "H2O, 48 entries",
        "One token a step with a cache of 48 entries: the newest, and those that got most attention. The text may differ.",
        {"drafter": "none", "policy": "h2o", "sampler": ["greedy"]},
        {"policy": {"heavy": 24, "recent": 24}},
    ),
    "streaming": Preset(
        "StreamingLLM, 48",
        "One token a step with a cache of 48 entries: the first four and the newest. The text may differ.",
        {"drafter": "none", "policy": "streaming_llm", "sampler": ["greedy"]},
        {"policy": {"recent": 44}},
    ),
    "eagle_h2o": Preset(
        "EAGLE-2 + H2O, 25 %",
        "EAGLE-2 drafts while H2O keeps a quarter of the cache: two savings together. The text may differ.",
        {"drafter": "eagle2", "policy": "h2o", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
    ),
    "lookup_streaming": Preset(
        "Lookup + sinks, 25 %",
        "Prompt lookup drafts while only the first and the newest quarter of the cache stays. The text may differ.",
        {"drafter": "prompt_lookup", "policy": "streaming_llm", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
    ),
    "beam": Preset(
        "Beam search",
        "Four hypotheses are carried along; the likeliest of them is the text, at the end of the run.",
        {"strategy": "beam"},
    ),
    "calm": Preset(
        "Early exit (CALM)",
        "A token is given as soon as a layer is sure of it, and the layers above do not run. The text may differ.",
        {"drafter": "none", "adaptive_depth": "confidence_exit", "sampler": ["greedy"]},
    ),
    "jacobi": Preset(
        "Jacobi",
        "A block of guesses is corrected pass by pass until it stops changing: no draft model, the greedy text.",
        {"strategy": "jacobi", "sampler": ["greedy"]},
    ),
    "cllm": Preset(
        "CLLM, trained for Jacobi",
        "A block of guesses is corrected by a model that was trained to come to rest in fewer passes: compare with Jacobi.",
        {"strategy": "jacobi", "sampler": ["greedy"]},
        models=CLLM,
    ),
    "canvas": Preset(
        "Canvas, by confidence",
        "A masked text is filled in any order: each pass commits the places that the model is sure of. The text may differ.",
        {"strategy": "masked", "unmasking": "threshold", "sampler": ["greedy"]},
        models=MASKED,
    ),
    "canvas_schedule": Preset(
        "Canvas, by schedule",
        "A masked text is filled in eight passes of equal size, the surest places first. The text may differ.",
        {"strategy": "masked", "unmasking": "low_confidence", "sampler": ["greedy"]},
        {"unmasking": {"steps": 8}},
        models=MASKED,
    ),
    "canvas_at_once": Preset(
        "Canvas, all at once",
        "Every place is drawn in one pass, none knowing the others: n names to shuffle come out right n!/n^n of the time.",
        {"strategy": "masked", "unmasking": "low_confidence", "sampler": ["temperature"]},
        {"unmasking": {"steps": 1}, **WARM},
        models=MASKED,
    ),
    "picture": Preset(
        "Picture, rows side by side",
        "A digit of 8 x 8 cells: a row begins when three cells above it are there. Ask for one of 0 to 9. The text may differ.",
        {"strategy": "zipar", "sampler": ["temperature"]},
        models=DIGITS,
    ),
    "snapkv": Preset(
        "SnapKV, 25 %",
        "Once the prompt is read a quarter of it stays, what its last tokens look at. The text may differ.",
        {"drafter": "none", "policy": "snapkv", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
    ),
    "needle_kept": Preset(
        "A pass key, Ada-KV 25 %",
        "A story says a number once; of the cache a quarter stays, what the question looks at. The text may differ.",
        {"drafter": "none", "policy": "adakv", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
        RECALL,
    ),
    "needle_lost": Preset(
        "A pass key, H2O 25 %",
        "The same question; a quarter stays, what all tokens looked at, and the number is not among it. The text may differ.",
        {"drafter": "none", "policy": "h2o", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
        RECALL,
    ),
    "adakv": Preset(
        "Ada-KV, 25 %",
        "As SnapKV, but the heads of a layer compete for the quarter, so some keep more than others. The text may differ.",
        {"drafter": "none", "policy": "adakv", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
    ),
    "pyramidkv": Preset(
        "PyramidKV, 25 %",
        "As SnapKV, but of the quarter the first layers keep the most and the last ones the least. The text may differ.",
        {"drafter": "none", "policy": "pyramidkv", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
    ),
    "expected": Preset(
        "Expected Attention, 25 %",
        "Once the prompt is read a quarter stays: what queries still to come are expected to look at. The text may differ.",
        {"drafter": "none", "policy": "expected_attention", "sampler": ["greedy"]},
        {"policy": {"budget_share": 0.25}},
    ),
    "fastgen": Preset(
        "FastGen, a policy a head",
        "Each head keeps the least that recovers nine tenths of its attention in the prompt. The text may differ.",
        {"drafter": "none", "policy": "fastgen", "sampler": ["greedy"]},
        {"policy": {"min_recovery": 0.9}},
    ),
    "duo": Preset(
        "DuoAttention, half the heads",
        "Heads that look things up keep everything, the other half the first and the newest entries. The text may differ.",
        {"drafter": "none", "policy": "duo_attention", "sampler": ["greedy"]},
        {"policy": {"recent": 28}},
    ),
    "tova": Preset(
        "TOVA, 48 entries",
        "One token a step with a cache of 48 entries: those that the newest token looks at most. The text may differ.",
        {"drafter": "none", "policy": "tova", "sampler": ["greedy"]},
        {"policy": {"cache_size": 48}},
    ),
    "key_norm": Preset(
        "Key norm, 48 entries",
        "One token a step with a cache of 48 entries: the newest, and those with the shortest keys. The text may differ.",
        {"drafter": "none", "policy": "key_norm", "sampler": ["greedy"]},
        {"policy": {"low_norm_entries": 32, "recent": 16}},
    ),
    "scissorhands": Preset(
        "Scissorhands, 48 entries",
        "At 48 entries many leave at once: those that most of the last rows gave less than an even share. The text may differ.",
        {"drafter": "none", "policy": "scissorhands", "sampler": ["greedy"]},
        {"policy": {"pivotal_entries": 38}},
    ),
    "d2o": Preset(
        "D2O, merging",
        "What goes over the budget of each layer becomes part of the entry that is most like it. The text may differ.",
        {"drafter": "none", "policy": "d2o", "sampler": ["greedy"]},
        {"policy": {"heavy": 24, "recent": 24}},
    ),
    "quest": Preset(
        "Quest, reads 48 entries",
        "Every entry is held, and each step reads the pages whose keys may answer it best. The text may differ.",
        {"drafter": "none", "policy": "quest", "sampler": ["greedy"]},
        {"policy": {"token_budget": 48}},
    ),
    "kivi": Preset(
        "KIVI, 2 bits",
        "Keys and values of all but the newest entries are packed into two bits a number. The text may differ.",
        {"drafter": "none", "kv_compression": "kivi", "sampler": ["greedy"]},
    ),
    "gear": Preset(
        "GEAR, 2 bits",
        "Two bits a number as in KIVI; outliers are exact, and a low-rank part corrects the rest. The text may differ.",
        {"drafter": "none", "kv_compression": "gear", "sampler": ["greedy"]},
    ),
    "minicache": Preset(
        "MiniCache, layers in pairs",
        "Two neighbouring layers share the directions of their entries and keep their lengths. The text may differ.",
        {"drafter": "none", "kv_compression": "minicache", "sampler": ["greedy"]},
    ),
    "gemfilter": Preset(
        "GemFilter, 64 tokens",
        "An early layer chooses 64 of the prompt's tokens, and the target reads those alone. The text may differ.",
        {"drafter": "none", "prompt_compression": "gemfilter", "sampler": ["greedy"]},
    ),
    "specpc": Preset(
        "SpecPC, 64 tokens",
        "A small model's attention chooses 64 of the prompt's tokens; the target reads those alone. The text may differ.",
        {"drafter": "none", "prompt_compression": "specpc", "sampler": ["greedy"]},
    ),
    "short_prompt": Preset(
        "Short prompt",
        "Phrases of the prompt that a small model expects anyway are left out (Selective Context). The text may differ.",
        {"drafter": "none", "prompt_compression": "selective_context", "sampler": ["greedy"]},
    ),
    "samples": Preset(
        "Four texts, one prompt",
        "Four texts are drawn at once; their prompt is held and read once for all of them (Hydragen).",
        {"strategy": "samples", "sampler": ["temperature"]},
        WARM,
    ),
    "mirostat": Preset(
        "Mirostat, steady surprise",
        "A bound on surprise moves with each token, so that the text is as surprising as asked for: neither dull nor wild.",
        {"drafter": "none", "sampler": ["mirostat"]},
    ),
    "momentum": Preset(
        "Momentum, no retracing",
        "The likeliest token, less a resistance that grows with how far it would retrace the text. The text changes.",
        {"drafter": "none", "sampler": ["momentum"]},
    ),
    "contrastive": Preset(
        "Contrastive search",
        "Of five likely tokens the one whose state is least like those of the text, all read in one pass. The text may differ.",
        {"strategy": "contrastive_search"},
    ),
    "diverse": Preset(
        "Beams in groups",
        "Three groups of two beams: each is fined for what those before it chose in the step. The text may differ.",
        {"strategy": "diverse_beam"},
    ),
    "planned": Preset(
        "A search by a test",
        "A tree of beginnings is searched for a text that is worth 24: ask for an expression, with the chat template.",
        {"strategy": "planned"},
        {"strategy": {"tests": "24"}},
    ),
    "aligned": Preset(
        "Records weighed whole (ASAp)",
        "Eight records are drawn, each token weighed by how much of what follows it the grammar allows; the last is the text.",
        {"strategy": "aligned", "sampler": ["grammar", "temperature"]},
        {"grammar": {"definition": RECORD}},
    ),
    "grammar": Preset(
        "A record, by a grammar",
        "Tokens that can no longer become a record are removed, and the likeliest of the others is written.",
        {"drafter": "none", "sampler": ["grammar", "greedy"]},
        {"grammar": {"definition": RECORD}},
    ),
    "consensus": Preset(
        "Eight texts, one vote",
        "Eight texts are drawn together, and the one that has most in common with the others is kept. The text may differ.",
        {"strategy": "consensus", "sampler": ["temperature"]},
        WARM,
    ),
    "predictive": Preset(
        "Next token begins early",
        "Half-way up three guesses of the next token begin their first layers; the one that was right goes on from there.",
        {"strategy": "predictive", "sampler": ["greedy"]},
    ),
    "s2d": Preset(
        "Sorted drafts (S2D)",
        "The target's first layers guess: two of them where they are sure, else four or six; the rest of the layers check.",
        {"drafter": "s2d", "sampler": ["greedy"]},
    ),
    "nest": Preset(
        "NEST, a text to quote from",
        "The target's distribution is mixed with what followed similar states in a text that it has read. The text changes.",
        {"drafter": "rest", "guidance": "nest", "sampler": ["greedy"]},
    ),
    "rapid": Preset(
        "RAPID, with retrieval",
        "The model also reads the best pieces of the prompt alone, and moves its distribution towards that. The text changes.",
        {"drafter": "none", "guidance": "rapid", "sampler": ["greedy"]},
        {"guidance": {"budget": 64, "window": 16, "question_tokens": 24}},
        models={"short": "lab"},
    ),
}
# what a page begins with on a model that was fetched; it needs no other model
FIRST_OF_FETCHED: dict[str, str | list[str]] = {"drafter": "prompt_lookup", "sampler": [GREEDY]}
SMALLER = ("plain", "h2o", "streaming")  # presets that hold less: no draft tree, or a bounded cache
