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
    LetterTokenizer as LetterTokenizer,
)
from decodescope.testing.toys import (
    add_row_noise as add_row_noise,
)
from decodescope.testing.toys import (
    add_tokenizer as add_tokenizer,
)
from decodescope.testing.toys import (
    any_order_target as any_order_target,
)
from decodescope.testing.toys import (
    bidirectional_target as bidirectional_target,
)
from decodescope.testing.toys import (
    block_target as block_target,
)
from decodescope.testing.toys import (
    cache_by_dtype as cache_by_dtype,
)
from decodescope.testing.toys import (
    cached_greedy_text as cached_greedy_text,
)
from decodescope.testing.toys import (
    decode as decode,
)
from decodescope.testing.toys import (
    decode_in_lockstep as decode_in_lockstep,
)
from decodescope.testing.toys import (
    decoder as decoder,
)
from decodescope.testing.toys import (
    draft as draft,
)
from decodescope.testing.toys import (
    feed_tokens as feed_tokens,
)
from decodescope.testing.toys import (
    finish_session as finish_session,
)
from decodescope.testing.toys import (
    greedy_block_text as greedy_block_text,
)
from decodescope.testing.toys import (
    greedy_picture_levels as greedy_picture_levels,
)
from decodescope.testing.toys import (
    greedy_text as greedy_text,
)
from decodescope.testing.toys import (
    heads as heads,
)
from decodescope.testing.toys import (
    helper_models as helper_models,
)
from decodescope.testing.toys import (
    matches_fresh_reading as matches_fresh_reading,
)
from decodescope.testing.toys import (
    method as method,
)
from decodescope.testing.toys import (
    method_models as method_models,
)
from decodescope.testing.toys import (
    model as model,
)
from decodescope.testing.toys import (
    noisy_decoder as noisy_decoder,
)
from decodescope.testing.toys import (
    open_session as open_session,
)
from decodescope.testing.toys import (
    pair as pair,
)
from decodescope.testing.toys import (
    prompts as prompts,
)
from decodescope.testing.toys import (
    raster_target as raster_target,
)
from decodescope.testing.toys import (
    router_strategy as router_strategy,
)
from decodescope.testing.toys import (
    session_trace as session_trace,
)
from decodescope.testing.toys import (
    strategy_target as strategy_target,
)
from decodescope.testing.toys import (
    tagging_target as tagging_target,
)
from decodescope.testing.toys import (
    target as target,
)
from decodescope.testing.toys import (
    toy_spec as toy_spec,
)
from decodescope.testing.toys import (
    transformed_decoder as transformed_decoder,
)

helpers = helper_models  # its name in version 0.1, which scripts use

TIMES = str(Path(__file__).resolve().parent / "methods" / "times.json")  # made-up times of the toy's blocks
# ids: text of the lively target, and noise
DATASTORE = str(Path(__file__).resolve().parent / "methods" / "datastore.txt")
# a random hidden Markov model of 3 states over the toy's letters
MARKOV = str(Path(__file__).resolve().parent / "methods" / "letters.hmm")

# Settings under which a component does something on a toy; [{}]: the defaults. A component without knobs needs no entry.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "aggressive": [{}],
    "anpd": [{}],
    "blockwise": [{}],
    "chains": [{}],
    "llma": [{}],
    "draft_model": [dict(max_draft_tokens=3), dict(max_draft_tokens=8), dict(max_draft_tokens=3, width=3)],
    "pard": [
        dict(max_draft_tokens=4),
        dict(max_draft_tokens=1),
        dict(max_draft_tokens=6, draft_temperature=0.0),
    ],
    "layer_skip": [
        dict(skip_ratio=0.5, min_probability=0.0),
        dict(skip_ratio=0.9, min_probability=0.3, max_draft_tokens=6),
        dict(skip_sublayers="a1", siblings=True),
    ],
    "medusa": [dict(nodes=8), dict(nodes=1)],
    "hydra": [dict(nodes=8), dict(nodes=20)],
    "mlp_speculator": [
        dict(max_paths=4),
        dict(branching="3,2", max_paths=1),
        dict(branching="2,2,2", max_paths=8),
    ],
    "redrafter": [dict(width=4), dict(width=1, depth=4), dict(width=5, depth=2, top_k=2)],
    "ppd": [dict(rows="16"), dict(rows="8"), dict(rows="32")],
    "bita": [dict(), dict(nodes=1), dict(nodes=8)],
    "look_ahead_tokens": [
        dict(),
        dict(placement="everywhere"),
        dict(max_draft_tokens=2, placement="everywhere"),
    ],
    "space": [dict(mask_token=3, max_draft_tokens=3), dict(mask_token=0, max_draft_tokens=1)],
    "s3d": [dict(mask_token=3), dict(mask_token=0, max_draft_tokens=2, skip_ratio=0.0)],
    "eagle": [dict(nodes=8), dict(nodes=1), dict(nodes=25, depth=2)],
    "eagle2": [
        dict(nodes=8, width=3),
        dict(nodes=1),
        dict(nodes=12, depth=2),
        dict(nodes=6, width=1, depth=6),
    ],
    "eagle3": [dict(nodes=8, width=3), dict(nodes=1), dict(nodes=20, depth=3)],
    "p_eagle": [dict(depth=4), dict(nodes=8, width=3), dict(nodes=20, depth=3, width=2), dict(nodes=1)],
    "mtp": [dict(), dict(nodes=8, width=3, depth=3), dict(depth=1)],
    "fspad": [dict(nodes=8, width=3), dict(nodes=1), dict(nodes=12, depth=2)],
    "parallelspec": [
        dict(nodes=8, width=3),
        dict(nodes=1, tokens_per_pass=1),
        dict(nodes=12, depth=5, tokens_per_pass=2),
        dict(nodes=9, width=1, tokens_per_pass=4),
    ],
    "dflash": [dict(), dict(max_draft_tokens=1)],
    "dspark": [dict(), dict(min_confidence=0.4), dict(max_draft_tokens=2, draft_temperature=0)],
    "clover": [dict(nodes=8), dict(nodes=20)],
    "kangaroo": [
        dict(max_draft_tokens=4, min_probability=0.0),
        dict(max_draft_tokens=5, min_probability=0.5),
    ],
    "s2d": [
        dict(max_draft_tokens=4, thresholds=[0.5]),
        dict(max_draft_tokens=3, exits=[1, 2], thresholds=[0.4], heads="exits"),
    ],
    "early_exit": [
        dict(max_draft_tokens=4, layers=1),
        dict(criterion="confidence_exit threshold=0.5 min_layers=1", min_probability=0.2),
    ],
    "swift": [
        dict(window=3, skip_ratio=0.5, max_draft_tokens=4, min_probability=0.2),
        dict(window=2, skip_ratio=0.5, min_probability=0, bayes_interval=2, siblings=False),
    ],
    "prompt_lookup": [dict(max_draft_tokens=4, ngram=2), dict(max_draft_tokens=12, ngram=1, match="first")],
    "lookahead": [
        dict(window=4, ngram=3, guesses=6, pool_from_prompt=True),
        dict(window=5, ngram=4),
        dict(window=3, ngram=2, guesses=3),
    ],
    "sjd": [dict(window=4), dict(window=3, initial_guess="repeat"), dict(window=1)],
    "rest": [
        dict(datastore=DATASTORE, nodes=12, min_suffix=1),
        dict(datastore=DATASTORE, nodes=1, max_suffix=3),
    ],
    "aded": [dict(datastore=DATASTORE, iterations=40, max_paths=6), dict(iterations=9, depth=2)],
    "sam_decoding": [
        dict(min_match=2, max_draft_tokens=6),
        dict(min_match=1, datastore=DATASTORE, datastore_bias=1, other_drafter="eagle2 nodes=8, width=3"),
    ],
    "suffix_decoding": [
        dict(outputs=DATASTORE, min_probability=0.0),
        dict(max_draft_tokens=6, max_spec_factor=2.0, max_depth=8, use_tree=True),
    ],
    "trie": [
        dict(nodes=12, depth=4),
        dict(nodes=40, max_suffix=3, max_output_nodes=8, output_weight=0.5),
        dict(nodes=1),
    ],
    "token_recycling": [dict(nodes="16"), dict(nodes="80", table_from_prompt=False)],
    "sequoia": [dict(nodes=8, depth=4), dict(nodes=12, depth=3, acceptance_rates="measured")],
    "dyspec": [dict(nodes=8), dict(nodes=12, depth=3)],
    "rsd_c": [dict(branching="3,2,1"), dict(branching="1,1,1")],
    "specinfer": [
        dict(models=2, branching="2,1,1"),
        dict(branching="1,2,1"),
        dict(models=3, branching="1,1"),
    ],
    "rasd": [
        dict(datastore=DATASTORE, min_suffix=1, nodes=6, depth=3, top_k=5),
        dict(width=1, nodes=2, min_suffix=1, retrieved_nodes=4),
    ],
    "propd": [
        dict(tree_drafter="token_recycling nodes=16", layers=1, top_k=4),
        dict(tree_drafter="trie nodes=40, max_output_nodes=8", layers=2, top_k=6),
    ],
    "online": [
        dict(max_draft_tokens=3, update_interval=1, learning_rate=0.01),
        dict(max_draft_tokens=6, update_interval=3, replay_size=4, window=16, loss="jsd"),
    ],
    "tli": [dict(max_draft_tokens=4), dict(max_draft_tokens=3, draft_temperature=0.5)],
    "universal_assisted": [dict(max_draft_tokens=5), dict(max_draft_tokens=3)],
    "staged": [
        dict(max_draft_tokens=5, max_table_tokens=3),
        dict(max_draft_tokens=4, max_table_tokens=2, table="lookup", ngram=2),
        dict(max_draft_tokens=3, max_table_tokens=0),
    ],
    "rsd_s": [dict(width=3, depth=3), dict(width=1, depth=4)],
    "leniency": [{}],
    "typical": [{}],
    "lantern": [{}, dict(neighbours=8, delta=0.3)],
    "judge": [dict(threshold=0.7), dict(threshold=0.5), dict(threshold=1.0)],
    "static_ensemble": [dict(target_weight=0.5), dict(target_weight=0.9)],
    "fly": [dict(threshold=0.0, window=1), dict(threshold=0.5, window=2, entropy_top_k=5)],
    "relaxed": [dict(top_k=3, delta=0.2), dict(top_k=2, delta=0.5, next_token="drawn")],
    "synthetic": [dict(acceptance_rates=[0.8, 0.5]), dict(acceptance_length=2.4)],
    "adaptive_verification": [
        dict(price_drafts=False),
        dict(price_drafts=False, max_draft_tokens=4, batch=2),
    ],
    "heuristic": [dict(), dict(increment=4, decrement=2, max_draft_tokens=6)],
    "confidence": [dict(threshold=0.6, max_draft_tokens=6), dict(threshold=0.3, tune_threshold=False)],
    "specdec_pp": [dict(threshold=0.7, max_draft_tokens=6), dict(threshold=0.4)],
    "cerberus": [dict(min_probability=0.4), dict(min_probability=0.85)],
    "goodput": [dict(probe_interval=1), dict(batch=64, max_draft_tokens=4, probe_interval=2)],
    "adakv": [dict(prompt_budget=5, window=3, pool_radius=1)],
    "fastgen": [
        dict(min_recovery=0.6, sink_tokens=2, heavy_share=0.2, recent_share=0.1),
        dict(min_recovery=0.3, sink_tokens=1, heavy_share=0.1, recent_share=0.1),
    ],
    "cam": [
        dict(target_entries=8, sink_tokens=2, merge_window=4),
        dict(target_entries=7, sink_tokens=1, interval=3, scorer="norm", merge="expected", merge_window=3),
    ],
    "d2o": [
        dict(heavy=5, recent=4, sink_tokens=2),
        dict(heavy=5, recent=4, sink_tokens=0, merge_weights="code", min_similarity=0.2),
    ],
    "duo_attention": [
        dict(streaming_share=0.5, sink_tokens=2, recent=6),
        dict(retrieval_heads="0.0 2.0", sink_tokens=0, recent=4),
    ],
    "ems": [
        dict(centres=5, recent=3, window=4, pool_radius=1),
        dict(centres=4, recent=2, min_similarity=0.2, merge_coverage=0.8),
    ],
    "expected_attention": [dict(sink_tokens=2, prompt_budget=6, future_positions=8)],
    "h2o": [dict(heavy=4, recent=4), dict(heavy=0, recent=3), dict(heavy=3, recent=4, oracle=True)],
    "kvzip": [dict(sink_tokens=2, prompt_budget=5, window=3, chunk=15, prefix_tokens=2)],
    "speckv": [
        dict(prompt_budget=4, window=3, lookahead=6),
        dict(prompt_budget=3, window=5, lookahead=3, reduce="mean", pool_radius=0),
    ],
    "interval_eviction": [
        dict(target_entries=7, interval=4, sink_tokens=2),
        dict(target_entries=6, interval=3, sink_tokens=0, scorer="difference"),
    ],
    "key_diff": [dict(distinct_entries=7), dict(distinct_entries=5, recent=3)],
    "key_rerotation": [
        dict(sink_tokens=2, prompt_budget=6),
        dict(sink_tokens=0, prompt_budget=7, scorer="norm", turn_keys=False),
    ],
    "lag_kv": [dict(sink_tokens=2, lag=11, kept_share=0.1)],
    "key_norm": [dict(low_norm_entries=5, recent=3)],
    "pyramidkv": [dict(prompt_budget=5, window=3)],
    "snapkv": [dict(prompt_budget=4, window=3), dict(prompt_budget=3, window=5, pool_radius=0, pool="max")],
    "quest": [dict(token_budget=48, dense_layers=1)],
    "scissorhands": [
        dict(pivotal_entries=6, recent=3, window=9),
        dict(pivotal_entries=5, recent=2, window=6, drop_share=0.0),
    ],
    "lm_infinite": [
        dict(sink_tokens=2, window=6),
        dict(sink_tokens=0, window=4),
        dict(sink_tokens=2, window=6, middle_top_k=2, middle_distance=4, first_middle_layer=1),
    ],
    "streaming_llm": [dict(sink_tokens=2, recent=6), dict(sink_tokens=0, recent=4)],
    "tidal_decode": [
        dict(top_k=6, selection_layer=0, reselection_layer=0),
        dict(top_k=9, selection_layer=0, reselection_layer=1),
        dict(top_k=6, selection_layer=1, reselection_layer=0),
    ],
    "tova": [dict(cache_size=6)],
    "window": [dict(window=6)],
    "specpc": [
        dict(prompt_budget=8, window=3, kernel=3, neighbours=3),
        dict(prompt_budget=6, window=2, lookahead=3, first_layer=0),
    ],
    "selective_context": [
        dict(reduce_ratio=0.4),
        dict(reduce_ratio=0.5, scorer="target", scorer_context="prompt", unit="token"),
    ],
    "llmlingua": [
        dict(keep_rate=0.6),
        dict(keep_rate=0.4, segment=8, scorer="target", drop_paragraphs=False),
    ],
    "color": [dict(), dict(keep_rate=0.3, unit="phrase", keep_question="none")],
    "cot_influx": [dict(), dict(keep_rate=0.3, keep_instruction=True, whole_examples=True)],
    "gemfilter": [dict(prompt_budget=6, kernel=3), dict(prompt_budget=10, layer=2)],
    "compress_then_prompt": [dict(), dict(use_soft_tokens=False)],
    "coprocessor": [dict(), dict(latent_tokens=2)],
    "fast_cot": [dict(preview_tokens=5, iterations=2), dict(preview_tokens=3, iterations=1, tail_tokens=3)],
    "ntk_attention": [dict(), dict(strength=0.0)],
    "gear": [
        dict(group=4, buffer=4, sparsity=0.1, rank=2, decode_rank=2),
        dict(group=4, buffer=8, bits="4", sparsity=0.0, rank=1, decode_rank=0, outlier_order="first"),
    ],
    "head_svd": [
        dict(min_entries=8, buffer=4),
        dict(min_entries=12, buffer=5, direction_share=0.4),
        dict(min_entries=4, buffer=4, heads_per_group=1),
    ],
    "minicache": [dict(buffer=4), dict(buffer=5, start_layer=0, interpolation=0.3, retention=0.3)],
    "kivi": [dict(group=4, buffer=4), dict(bits="4", group=4, buffer=8)],
    "entropy_exit": [
        dict(threshold=1.0, min_layers=1),
        dict(thresholds="0.5,2.0", entropy_over="top", min_layers=1),
    ],
    "normalized_entropy_exit": [dict(threshold=0.5, min_layers=1)],
    "patience": [dict(patience=1, min_layers=1)],
    "past_future": [dict(threshold=0.5, min_layers=1)],
    "free": [
        dict(threshold=0.05, min_layers=1, max_pending=2),
        dict(threshold=0.05, min_layers=1, max_pending=8),
    ],
    "saturation": [dict(threshold=0.8, min_layers=1)],
    "vote": [dict(min_votes=1.2, power=0.4, min_layers=1)],
    "hash_exit": [
        dict(min_layers=1, buckets=3),
        dict(min_layers=1, buckets=2, bucket_assignment="random", seed=5),
    ],
    "row_pruning": [dict(keep_share=0.5, pruning_layers=[1]), dict(keep_share=0.7, pruning_layers=[1, 2])],
    "magic_pyramid": [dict(keep_share=0.5, pruning_layers=[1], threshold=0.5, min_layers=1)],
    "layer_plan": [dict(skip=["l1"]), dict(skip=["a2", "f0"])],
    "trigrams": [dict(), dict(layers=2, table_size=1), dict(heads="trigrams", table_size=0)],
    "skip_layer": [dict(threshold=0.4), dict(threshold=0.2, skipped_kv="absent")],
    "skipdecode": [
        dict(min_layers=1, decay_horizon=12),
        dict(min_layers=2, decay_horizon=5, warmup_layers=0),
    ],
    "ffn_skip": [
        dict(threshold=0.3, warmup_tokens=0, cold_start=0, cold_end=0),
        dict(threshold=-1.0, warmup_tokens=3, cold_start=0, cold_end=1),
    ],
    "confidence_exit": [
        dict(threshold=0.6, min_layers=1),
        dict(criterion="state", threshold=0.5, min_layers=1),
        dict(criterion="meta", threshold=0.55, min_layers=1, heads="exits"),
        dict(criterion="oracle", min_layers=1),
    ],
    "beam": [dict(width=3), dict(width=3, attention_plan="flatten", block=16)],
    "contrastive_search": [dict(top_k=4), dict(top_k=13, alpha=0.9)],
    "diverse_beam": [
        dict(width=4, groups=2),
        dict(width=6, groups=3, diversity_penalty=1.5, attention_plan="node"),
    ],
    "encode_once": [{}],
    "planned": [dict(tests="271\n1", rollouts=10), dict(tests="324108695620314696\n1", top_k=5, rollouts=8)],
    "exact_extract": [
        dict(end_token="7"),
        dict(end_token="2", max_span_tokens=5, suffixes_per_pass=3, length_normalization=True),
    ],
    "apar": [dict(fork_token="4", child_token="7"), dict(fork_token="9", child_token="0", max_threads=3)],
    "jump_coder": [dict(newline="2", tau=0.0, max_infill_tokens=1, max_similarity=1.0)],
    "edit_tags": [dict(block=8), dict(block=5, max_rounds=9, min_probability=0.3, draft="3 9 2 4")],
    "skeleton": [dict(outline_prompt="3 5 7")],
    "label_parallel": [dict(labels="3\n5", count_template="3 {label} 7")],
    "lexical_units": [
        dict(min_probability=0.3, placeholders=3),
        dict(min_probability=0.0, placeholders=2, allow_repeats=True, placeholder_token="5"),
    ],
    "superposed": [
        dict(alpha=0.3, temperature=1.0, datastore=DATASTORE),
        dict(drafts=2, alpha=0.0, temperature=0.5),
    ],
    "joint_tokens": [
        dict(threshold=0.1, datastore=DATASTORE),
        dict(threshold=0.2, max_tokens_per_pass=2, cooccurrence_exponent=0.0),
    ],
    "pearl": [dict(), dict(machine="a100-80g"), dict(overlap=True)],
    "predictive": [dict(), dict(layers=2, branches=1, heads="exits")],
    "speed": [dict(layers=1), dict(layers=1, heads="exits")],
    "samples": [dict(samples=3), dict(samples=3, attention_plan="node")],
    "aligned": [dict(samples=3)],
    "consensus": [dict(samples=3), dict(samples=4, similarity="edit"), dict(samples=5, similarity="exact")],
    "jacobi": [
        dict(block=4),
        dict(block=7, initial_guess="random"),
        dict(block=0, initial_guess="prompt"),
        dict(block=5, initial_guess="pad", guessed_length=20),
    ],
    "switch": [{}],
    "cascade": [{}],
    "answer_confidence": [dict(tau=0.2), dict(tau=0.9)],
    "trained_confidence": [dict(tau=0.2), dict(tau=0.9)],
    "expected_cost": [dict(tau=0.0), dict(tau=1e6, answer_tokens=4)],
    "agreement": [dict(tau=0.4, samples=2), dict(tau=1.1, samples=2, second_prompt_suffix="")],
    "references": [
        dict(tau=0.4, pairs='{"question": "3 1", "answer": "4 1", "right": true}'),
        dict(tau=0.9, pairs='{"question": "3 1", "answer": "4 1", "right": false}'),
    ],
    "entropy": [
        dict(tau=1.0, window=2, min_turn_tokens=2),
        dict(tau=1.2, min_turn_tokens=1, first_model="small", reset_window=True, large_tau_offset=0.2),
    ],
    "fallback": [
        dict(tau=0.5, rollback_threshold=1.0, max_draft_tokens=4),
        dict(tau=0.0, rollback_threshold=0.0, max_draft_tokens=3),
    ],
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
    "explore": [
        dict(tau=0.6, later_block_margin=0.0),
        dict(tau=0.6, parallel_blocks=3, candidates=3, min_sure_places=4),
    ],
    "learn2pd": [dict(steps=8, filter_threshold=0.55), dict(steps=3, cut_after_end=False)],
    "local_leap": [dict(tau=0.7, relaxed_tau=0.4, anchor_radius=2)],
    "contrastive": [dict(alpha=0.05, strength=0.5), dict(alpha=0.3, temperature=1.0)],
    "rapid": [
        dict(budget=8, window=3, question_tokens=3, strength=20.0),
        dict(budget=9, window=4, question_tokens=2, strength=8.0, alpha=0.4),
    ],
    "nest": [
        dict(datastore=DATASTORE, neighbours=100, window=9, temperature=0.2, alpha=0.85),
        dict(datastore=DATASTORE, neighbours=40),
    ],
    "grammar": [
        dict(definition="[a-l]{40}"),
        dict(definition='start: "a" start "b" | /[c-l]+/', dialect="lark"),
    ],
    "deco_g": [
        dict(format="[a-l]{40,60}", markov_file=MARKOV, max_tokens=60),
        dict(format="([a-l][c-l])*", markov_file=MARKOV, min_belief=0.2),
    ],
    "int8": [dict(include_lm_head=True), {}],
    "int4": [dict(group=32), dict(group=32, include_lm_head=True)],
    "codes": [dict(bits=3), dict(bits=2, group=16, include_lm_head=True)],
    "finequant": [{}, dict(max_range_ratio=1.0, include_lm_head=True)],
    "head_sensitivity": [dict(cut_share=0.3, calibration_tokens=128, rounds=2)],
    "head_subset": [dict(kept_heads=7, steps=2)],
    "head_gates": [dict(l0_penalty=20.0, steps=4, learning_rate=1.0, initial_log_odds=0.5)],
    "cut_layers": [dict(skip=["a1", "f0"]), dict(skip=["l2"])],
    "evopress": [
        dict(offspring=2, generations=1, first_stage_tokens=32, last_stage_tokens=32),
        dict(whole_layers=True, generations=1, two_stages=False, last_stage_tokens=32),
    ],
    "width_gates": [
        dict(cut_share=0.4, columns_per_gate=8, steps=2),
        dict(cut_share=0.2, columns_per_gate=16, rank=2, steps=2, initial_log_odds=0.0),
    ],
    "latency_fit": [
        dict(speedup=1.6, timing_table=TIMES, calibration_tokens=256, search_trials=1, evaluation_tokens=64)
    ],
    "sparse_nm": [{}, dict(kept_weights=1, include_lm_head=True)],
    "pv_tuning": [dict(steps=1), dict(bits=4, group=16, steps=1)],
    "temperature": [dict(temperature=0.8)],
    "top_k": [dict(k=4)],
    "top_p": [dict(p=0.7)],
    "min_p": [dict(p=0.2)],
    "mirostat": [dict(target_surprise=1.5, learning_rate=0.3)],
    "mirostat1": [dict(target_surprise=1.5, zipf_tokens=10)],
    "locally_typical": [dict(tau=0.5)],
    "momentum": [dict(), dict(top_k=13, alpha=0.0, no_repeat_ngram_size=3)],
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
