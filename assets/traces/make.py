"""Record the example runs of this folder with the shipped models:  python assets/traces/make.py [NAME ...]

Writes NAME.dstrace and index.json. A run's id follows from its name, so that links to it stay good. With --old those whose
models have other weights by now, so that no fork goes on from them. What cannot be recorded is named in the end, and keeps its
file. A text that goes round is refused, unless that is what it shows: `python benchmarks/examples.py NAME` looks for a prompt.

The first examples are of a real model, which `decodescope models get smollm2-135m-instruct` fetches. DECODESCOPE_REAL_MODEL
names another place of its file. Without the file they are left as they are, and a line says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from decodescope.app.runs.preset_prompts import MOST, NEEDLE, NESTED, RECORD, RENAMED, SUM
from decodescope.engine import Method, load
from decodescope.engine.session.run import LazyWriter, encode_text_or_ids
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Step, open_trace
from decodescope.engine.trace.query.repeats import repeated_share
from decodescope.lab.lessons import CODE, PAGE, REAL_MODEL, real_model_path

HERE = Path(__file__).resolve().parent
# Several, in case that the model ends a text at once: the first one that gives ENOUGH steps is taken.
STORIES = [
    "Once upon a time, there was a little girl",
    "Once upon a time, there was a little",
    "One day, a girl named",
]
RECORDS = [
    RECORD.prompt,
    '{"id": 64, "name": "Oliver", "city": "Sydney", "tags": ["brown", "red"], "active": false}\nRepeat this.',
]
ENOUGH = 12
PEOPLE = (
    "Oliver is a teacher in Lisbon and has a lamp. Rufus is a musician in Tokyo and has a kite. "
    "Bertha is a doctor in Lisbon and likes white.\n\nAll of them, one by one.\n"  # the request that lab+outline knows
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Bertha", "Oliver"]},
        "city": {"type": "string", "pattern": "^[A-Z][a-z]{2,9}$"},
        "tags": {"type": "array", "items": {"enum": ["gold", "silver", "red"]}, "minItems": 1, "maxItems": 2},
        "active": {"type": "boolean"},
    },
    "required": ["name", "city", "tags", "active"],
    "additionalProperties": False,
}
FOUND: dict[str, Any] = {
    "model": "lab-recall",
    "prompts": [NEEDLE.prompt],
    "chat": True,
    "new": 12,
    "seed": 7,
    "level": "decisions",
    "enough": 5,
}
RENAME: dict[str, Any] = {
    "prompts": [RENAMED.prompt],
    "chat": True,
    "new": 40,
    "seed": 7,
    "level": "decisions",
}
# The first one is what the page opens on.
COPY: dict[str, Any] = {"prompts": RECORDS, "chat": True, "new": 64, "seed": 7, "level": "decisions"}
SETTLING: dict[str, Any] = {
    "names": {"strategy": "jacobi"},
    "settings": {},
    "prompts": ["Once upon a time, there was a little girl named Susan. Next door lived"],
    "new": 32,
    "seed": 7,
    "level": "decisions",
}
REEF = (
    "The Great Barrier Reef is the largest coral reef system in the world. It lies off the coast of Queensland in "
    "Australia and is composed of over 2,900 individual reefs. The reef is home to a wide variety of life, and it is "
    "threatened by warming seas, by pollution and by a starfish that eats coral."
)
LETTER = (
    "Dear shop, my name is Maria Lopez and I live in Madrid. My order 4471 has not arrived. Please send it again. "
    "Yours, Maria Lopez"
)
ORDER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "city": {"type": "string", "maxLength": 40},
        "order": {"type": "integer", "minimum": 0, "maximum": 99999},
    },
    "required": ["name", "city", "order"],
    "additionalProperties": False,
}
ASKED: dict[str, Any] = {"model": REAL_MODEL, "chat": True, "seed": 7, "level": "decisions"}
# Prompts that people type. The lists begin with these; the page opens on the first of the shipped models.
REAL: dict[str, dict[str, Any]] = {
    "type-hints": {
        "title": "Code that repeats its question",
        "about": "Prompt lookup copies the function from the question. Many tokens hold at once; the hints are new.",
        "names": {"drafter": "prompt_lookup"},
        "settings": {"drafter": {"max_draft_tokens": 10}},
        "prompts": [CODE],
        "new": 80,
        "enough": 8,
        **ASKED,
    },
    "reef": {
        "title": "A summary that borrows its words",
        "about": "N-grams of the paragraph are drafted. Whole phrases are kept; the words between are the model's own.",
        "names": {"drafter": "anpd"},
        "settings": {"drafter": {"max_draft_tokens": 6}},
        "prompts": [f"Summarize this paragraph in two sentences:\n\n{REEF}"],
        "new": 80,
        "enough": 8,
        **ASKED,
    },
    "library-card": {
        "title": "An answer from a page",
        "about": "H2O keeps 96 of 225 entries. Watch which words of the page stay, and that the price is still found.",
        "names": {"policy": "h2o"},
        "settings": {"policy": {"heavy": 64, "recent": 32}},
        "prompts": [
            f"Read the text and answer the question.\n\nText: {PAGE}\n\nQuestion: How much does a card cost?"
        ],
        "new": 24,
        "enough": 6,
        **ASKED,
    },
    "library-lost": {
        "title": "The same page, forgotten",
        "about": "StreamingLLM keeps 4 sinks and the newest 92 entries. The price has left; see what is said instead.",
        "names": {"policy": "streaming_llm"},
        "settings": {"policy": {"sink_tokens": 4, "recent": 92}},
        "prompts": [
            f"Read the text and answer the question.\n\nText: {PAGE}\n\nQuestion: How much does a card cost?"
        ],
        "new": 24,
        "enough": 6,
        **ASKED,
    },
    "letter-json": {
        "title": "JSON out of a letter",
        "about": "A schema removes every token that does not fit, and prompt lookup drafts names from the letter.",
        "names": {"drafter": "prompt_lookup", "sampler": ["grammar", "greedy"]},
        "settings": {"grammar": {"dialect": "json", "definition": json.dumps(ORDER)}},
        "prompts": [f"Turn this letter into JSON with the keys name, city and order: {LETTER}"],
        "new": 48,
        "enough": 6,
        **ASKED,
    },
    "dragon": {
        "title": "A story, drawn with min-p",
        "about": "A token needs a twentieth of the likeliest one's probability. In some steps one stays, in others many.",
        "names": {"sampler": ["temperature", "min_p"]},
        "settings": {"temperature": {"temperature": 0.8}, "min_p": {"p": 0.05}},
        "prompts": ["Write a story about a dragon who is afraid of fire."],
        "new": 80,
        **ASKED,
    },
    "own-int4": {
        "title": "Its own int4 form drafts",
        "about": "The draft is the same model in four bits. Find the guesses where rounding alone changed the choice.",
        "names": {"drafter": "draft_model"},
        "settings": {"drafter": {"max_draft_tokens": 4}},
        "roles": {"draft": f"{REAL_MODEL}@int4 group=64"},
        "prompts": ["Why is the sky blue?"],
        "new": 64,
        **ASKED,
    },
    "cut-draft": {
        "title": "Drafts that are refused, and why",
        "about": "Four attention blocks are cut from the draft. Its guesses read well, and the target wants other words.",
        "names": {"drafter": "draft_model", "sampler": ["temperature"]},
        "settings": {"drafter": {"max_draft_tokens": 5}, "temperature": {"temperature": 0.6}},
        "roles": {"draft": f"{REAL_MODEL}@cut_layers skip=a14,a16,a18,a20"},
        "prompts": ["List three tips for sleeping better."],
        "new": 80,
        "enough": 8,
        **ASKED,
    },
    "other-vocabulary": {
        "title": "A draft model with another vocabulary",
        "about": "lab-draft has 4,096 tokens of its own. It draws only those that the model has too, and q is 0 elsewhere.",
        "names": {"drafter": "tli"},
        "settings": {"drafter": {"max_draft_tokens": 4}},
        "roles": {"draft": "lab-draft"},
        "prompts": ["Write a Python function that tells whether a number is prime."],
        "new": 44,
        **ASKED,
    },
    "text-between": {
        "title": "Drafted as text, split again",
        "about": "The draft model writes up to 8 tokens of its own. The model's tokenizer makes fewer and longer ones of them.",
        "names": {"drafter": "universal_assisted"},
        "settings": {"drafter": {"max_draft_tokens": 8}},
        "roles": {"draft": "lab-draft"},
        "prompts": ["Write a Python function that tells whether a number is prime."],
        "new": 44,
        **ASKED,
    },
    "layer-skip": {
        "title": "The model drafts with fewer layers",
        "about": "Self-speculation: the draft skips some of the target's own blocks, and one full pass checks its guesses.",
        "names": {"drafter": "layer_skip"},
        "settings": {"drafter": {"max_draft_tokens": 3, "skip_sublayers": ["a14", "a16", "a18", "a20"]}},
        "prompts": ["Explain photosynthesis in two sentences."],
        "new": 64,
        **ASKED,
    },
    "account": {
        "title": "A class, from recycled guesses",
        "about": "Token recycling drafts a tree of likely successors from earlier passes. See which branches are kept.",
        "names": {"drafter": "token_recycling"},
        "settings": {"drafter": {"nodes": "16"}},
        "prompts": ["Write a Python class for a bank account with deposit and withdraw."],
        "new": 90,
        **ASKED,
    },
    "factorial": {
        "title": "A function, guessed ahead",
        "about": "Lookahead: n-grams from earlier passes become drafts. They help where the text returns to its own words.",
        "names": {"drafter": "lookahead"},
        "settings": {},
        "prompts": ["Write a Python function that returns the factorial of n."],
        "new": 64,
        **ASKED,
    },
    "two-bit-cache": {
        "title": "A cache in two bits",
        "about": "KIVI packs keys and values into two bits a number. The answer stays right; see what each step saves.",
        "names": {"kv_compression": "kivi"},
        "settings": {"kv_compression": {"bits": "2", "group": 32, "buffer": 32}},
        "prompts": [
            "Text: The bridge was built in 1932 by John Hart. It is 210 metres long and carries two roads. "
            "In 1987 it was painted red.\n\nQuestion: Who built the bridge?"
        ],
        "new": 24,
        "enough": 6,
        **ASKED,
    },
    "shorter-page": {
        "title": "A page cut to what is asked",
        "about": "GemFilter reads the page with 20 layers and keeps 160 tokens of 225; the whole model answers from those.",
        "names": {"prompt_compression": "gemfilter"},
        "settings": {"prompt_compression": {"prompt_budget": 160, "layer": 20}},
        "prompts": [
            f"Read the text and answer the question.\n\nText: {PAGE}\n\nQuestion: How much does a card cost?"
        ],
        "new": 11,
        "enough": 6,
        **ASKED,
    },
    "too-early": {
        "title": "Leaving early without training",
        "about": "A pass ends at the first layer that is sure. Nobody trained this model for that: London slips in.",
        "names": {"drafter": "none", "adaptive_depth": "confidence_exit"},
        "settings": {"adaptive_depth": {"threshold": 0.97}},
        "prompts": ["What is the capital of France?"],
        "new": 32,
        "enough": 6,
        **ASKED,
    },
    "vote": {
        "title": "A majority that is wrong",
        "about": "Eight answers are drawn from one cache, and the most frequent text wins. Four say 32, and none says 42.",
        "names": {"strategy": "consensus", "sampler": ["temperature"]},
        "settings": {"strategy": {"samples": 8, "similarity": "exact"}, "temperature": {"temperature": 0.7}},
        "prompts": ["What is 12 plus 30? Answer with the number only."],
        "new": 12,
        "enough": 2,
        **ASKED,
    },
    "query": {
        "title": "Four texts at once",
        "about": "Beam search follows four queries. What they have in common is held in the cache once.",
        "names": {"strategy": "beam"},
        "settings": {"strategy": {"width": 4, "attention_plan": "node"}},
        "prompts": ["Write an SQL query that lists all customers from Berlin."],
        "new": 40,
        **ASKED,
    },
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "first-rejection": {
        "title": "First rejection",
        "about": "A small model drafts three branches of five tokens; the large one checks them all in one pass.",
        "names": {"drafter": "draft_model", "sampler": ["temperature"]},
        "settings": {"drafter": {"max_draft_tokens": 5, "width": 3}, "temperature": {"temperature": 0.5}},
        "prompts": STORIES,
        "new": 96,
        "seed": 9,
        "level": "decisions",
    },
    "h2o": {
        "title": "Eviction while decoding",
        "about": "H2O keeps the 12 entries that drew most attention and the newest 12; all others leave the cache.",
        "names": {"policy": "h2o", "sampler": ["temperature"]},
        "settings": {"policy": {"heavy": 12, "recent": 12}, "temperature": {"temperature": 0.5}},
        "prompts": STORIES[1:],
        "new": 36,
        "seed": 4,
        "level": "full",
    },
    "recycling": {
        "title": "Draft without a draft model",
        "about": "Asked to repeat a record, the model is offered trees of successors seen before; the text is the plain one.",
        "names": {"drafter": "token_recycling"},
        "settings": {"drafter": {"nodes": "16"}},
        "prompts": RECORDS,
        "chat": True,
        "new": 96,
        "seed": 7,
        "level": "decisions",
    },
    "lookahead": {
        "title": "Guesses ride along",
        "about": "Lookahead: a window of guesses rides every pass; what it completes is tried when its first token comes.",
        "names": {"drafter": "lookahead"},
        "settings": {},
        **COPY,
    },
    "eagle": {
        "title": "A tree from a trained head",
        "about": "EAGLE-2: one small layer reads the target's own state and grows the tree where it is sure.",
        "names": {"drafter": "eagle2"},
        "settings": {"drafter": {"nodes": 16}},
        **COPY,
        "enough": 7,
    },
    "space": {
        "title": "Masks behind every guess",
        "about": "SPACE: four masks follow each guess. The pass that checks the guesses fills them: these are the next ones.",
        "model": "lab+lud",
        "names": {"drafter": "space"},
        "settings": {"drafter": {"mask_token": 1, "max_draft_tokens": 4}},
        **COPY,
        "enough": 8,
    },
    "s3d": {
        "title": "Masks, and layers left out",
        "about": "S3D: three masks follow the text in a pass without the middle layers, then the whole model checks.",
        "model": "lab+lud",
        "names": {"drafter": "s3d"},
        "settings": {"drafter": {"mask_token": 1, "max_draft_tokens": 4, "skip_ratio": 0.25}},
        **COPY,
        "enough": 8,
    },
    "kangaroo": {
        "title": "The model drafts for itself",
        "about": "Kangaroo: two layers and a small adapter guess, six above check, and know the new name where two do not.",
        "names": {"drafter": "kangaroo"},
        "settings": {},
        **RENAME,
        "new": 64,
        "enough": 8,
    },
    "early-exit": {
        "title": "Layers left out, text changed",
        "about": "A pass stops at the first layer that is half sure of its token: quicker, and the copy goes wrong.",
        "names": {"drafter": "none", "adaptive_depth": "confidence_exit"},
        "settings": {"adaptive_depth": {"threshold": 0.5}},
        **COPY,
    },
    "exit-checked": {
        "title": "Layers left out, text kept",
        "about": "The same rule as a criterion: where it leaves is a guess, and the layers left out check it.",
        "names": {"drafter": "early_exit"},
        "settings": {"drafter": {"criterion": "confidence_exit threshold=0.5", "max_draft_tokens": 6}},
        **COPY,
        "enough": 5,
    },
    "ffn-skip": {
        "title": "Feed-forward blocks left out",
        "about": "FFN-SkipLLM: where a block hardly turned the state, the blocks above are not read; attention runs on.",
        "names": {"drafter": "none", "adaptive_depth": "ffn_skip"},
        "settings": {"adaptive_depth": {"threshold": 0.97, "warmup_tokens": 8}},
        "prompts": ["Once upon a time, there was a little girl named Lily. She"],
        "new": 40,
        "seed": 7,
        "level": "decisions",
    },
    "skipdecode": {
        "title": "A staircase of layers",
        "about": "SkipDecode: eight layers for the first tokens, four for the last, and no entry is ever missing.",
        "model": "lab+skipdecode",
        "names": {"drafter": "none", "adaptive_depth": "skipdecode"},
        "settings": {"adaptive_depth": {"min_layers": 4, "decay_horizon": 48}},
        "prompts": ["Ruby and Will went to the"],
        "new": 56,
        "seed": 7,
        "level": "decisions",
    },
    "flush": {
        "title": "Tokens that wait for the upper layers",
        "about": "FREE: sure tokens leave before layer four; the next unsure one takes them along, all at once.",
        "names": {"drafter": "none", "adaptive_depth": "free"},
        "settings": {"adaptive_depth": {"min_layers": 4, "threshold": 0.7}},
        **COPY,
    },
    "two-lanes": {
        "title": "Two models write in turns",
        "about": "Big Little Decoder: the small model writes until it is unsure; the large one reads the block and goes on.",
        "names": {"strategy": "switch", "router": "fallback"},
        "settings": {"router": {"tau": 0.5, "rollback_threshold": 2.0}},
        **COPY,
        "enough": 8,
    },
    "entropy-turns": {
        "title": "Hard places to the large one",
        "about": "EAD: while the last five laws have up to two bits on average the small model writes, else the large one.",
        "names": {"strategy": "switch", "router": "entropy"},
        "settings": {"router": {"tau": 2.0, "min_turn_tokens": 4}},
        "prompts": STORIES,
        "new": 48,
        "seed": 7,
        "level": "decisions",
    },
    "no-agreement": {
        "title": "Three answers, none alike",
        "about": "Mixture of Thought: the small model answers three times; where these disagree the large one is asked.",
        "names": {"strategy": "cascade", "router": "agreement", "sampler": ["temperature"]},
        "settings": {
            "router": {"samples": 3, "second_prompt_suffix": ""},
            "temperature": {"temperature": 0.5},
        },
        "prompts": ["What is 7 times 6?"],
        "chat": True,
        "new": 24,
        "seed": 7,
        "level": "decisions",
        "enough": 1,
    },
    "jacobi": {
        "title": "A block that settles",
        "about": "Jacobi decoding: eight guesses are read at once and replaced by the model's choices until they stand.",
        **SETTLING,
    },
    "cllm": {
        "title": "Trained to settle",
        "about": "CLLM: Jacobi's blocks again, by a model that was trained to guess its own choices earlier.",
        "model": "lab+cllm",
        **SETTLING,
        "prompts": RECORDS,
        "chat": True,
    },
    "apar": {
        "title": "A list that forks",
        "about": "APAR: where the model writes [Fork] a thread begins, and each pass writes a token of all that are alive.",
        "model": "lab+outline",
        "names": {"strategy": "apar"},
        "settings": {"strategy": {"fork_token": "<|reserved_0|>", "child_token": "<|reserved_1|>"}},
        "prompts": [PEOPLE],
        "new": 96,
        "seed": 7,
        "level": "decisions",
    },
    "canvas": {
        "title": "Ends first, names last",
        "about": "Masked diffusion: a canvas is filled where the model is sure, and of five names to shuffle one a pass.",
        "model": "lab-mdm",
        "names": {"strategy": "masked", "unmasking": "threshold"},
        "settings": {},
        "prompts": ["shuffle: Ada Ben Clara Finn Hugo ->"],
        "new": 16,
        "seed": 7,
        "level": "decisions",
        "enough": 6,
    },
    "wall": {
        "title": "All at once, none knowing",
        "about": "Five names to shuffle, drawn in one pass: each place knows the list and none knows what another got.",
        "model": "lab-mdm",
        "names": {"strategy": "masked", "unmasking": "low_confidence", "sampler": ["temperature"]},
        "settings": {"unmasking": {"steps": 1}, "temperature": {"temperature": 1.0}},
        "prompts": ["shuffle: Ada Ben Clara Finn Hugo ->"],
        "new": 8,
        "seed": 1,
        "level": "decisions",
        "enough": 1,
    },
    "digit": {
        "title": "Row beside row",
        "about": "ZipAR: a digit of 8 x 8 cells in 34 passes. A row begins three cells behind the one above it.",
        "model": "lab-digits",
        "names": {"strategy": "zipar", "sampler": ["temperature"]},
        "settings": {"strategy": {"window": 3}, "temperature": {"temperature": 1.0}},
        "prompts": ["3"],
        "new": 64,
        "seed": 2,
        "level": "decisions",
    },
    "sjd": {
        "title": "Drawn ahead, kept exact",
        "about": "SJD: a window of cells is drawn ahead and verified in one pass; each keeps the model's distribution.",
        "model": "lab-digits",
        "names": {"drafter": "sjd", "sampler": ["temperature"]},
        "settings": {"temperature": {"temperature": 1.0}},
        "prompts": ["3"],
        "new": 64,
        "seed": 2,
        "level": "decisions",
    },
    "randar": {
        "title": "Cells in any order",
        "about": "RandAR: the cells of a digit come in random order, asked for by name, and more of them in each pass.",
        "model": "lab-digits-any",
        "names": {"strategy": "randar", "sampler": ["temperature"]},
        "settings": {"strategy": {"steps": 16}, "temperature": {"temperature": 1.0}},
        "prompts": ["3"],
        "new": 64,
        "seed": 2,
        "level": "decisions",
    },
    "superposed": {
        "title": "Three texts in one row",
        "about": "Superposed decoding: a pass reads the mixture of three last tokens; n-grams tell the texts apart.",
        "names": {"strategy": "superposed"},
        "settings": {},
        "prompts": STORIES,
        "new": 16,
        "seed": 7,
        "level": "decisions",
    },
    "adaptive": {
        "title": "As long as it dares",
        "about": "The draft goes on while it is sure: one guess in some steps, twenty in another. The bar tunes itself.",
        "names": {"drafter": "draft_model", "schedule": "confidence"},
        "settings": {},
        "prompts": ["Once upon a time, there was a boy called Jonas. One hardly ever saw"],
        "new": 40,
        "seed": 7,
        "level": "decisions",
    },
    "worth-a-row": {
        "title": "Worth its row, or not",
        "about": "With 32 texts at once a row costs time. A guess is verified only while it is likely enough to survive.",
        "names": {"drafter": "draft_model", "schedule": "adaptive_verification"},
        "settings": {"schedule": {"batch": 32}},
        "prompts": ["Once upon a time, there was a boy called Jonas. One hardly ever saw"],
        "new": 40,
        "seed": 7,
        "level": "decisions",
    },
    "two-drafts": {
        "title": "Two drafts, one check",
        "about": "SpecInfer: two small models draw a tree each, and the large one checks both in one pass.",
        "names": {"drafter": "specinfer", "sampler": ["temperature"]},
        "settings": {"drafter": {"models": 2, "branching": "2,1,1"}, "temperature": {"temperature": 0.8}},
        "prompts": STORIES,
        "new": 48,
        "seed": 1,
        "level": "decisions",
    },
    "block": {
        "title": "A later draw saves the draft",
        "about": "Block verification judges five guesses as a whole: a success further down repairs a failure above.",
        "names": {"drafter": "draft_model", "acceptance": "block", "sampler": ["temperature"]},
        "settings": {"drafter": {"max_draft_tokens": 5}, "temperature": {"temperature": 0.8}},
        "prompts": STORIES,
        "new": 64,
        "seed": 11,
        "level": "decisions",
    },
    "cold-draft": {
        "title": "A greedy draft under a target that samples",
        "about": "Servers draft the likeliest tokens. The rule takes each as chosen without chance, so q is 1 everywhere.",
        "names": {"drafter": "draft_model", "sampler": ["temperature"]},
        "settings": {
            "drafter": {"max_draft_tokens": 4, "draft_temperature": 0.0},
            "temperature": {"temperature": 0.8},
        },
        "prompts": STORIES,
        "new": 40,
        "seed": 11,
        "level": "decisions",
    },
    "suffix": {
        "title": "The longer the match, the longer the draft",
        "about": "Suffix decoding follows what came next most often, and further after a longer match.",
        "names": {"drafter": "suffix_decoding"},
        "settings": {},
        **COPY,
        "enough": 5,
    },
    "sam": {
        "title": "A copy beside a head",
        "about": "Where five tokens at the text's end stood before, their sequel is drafted; elsewhere EAGLE-2 drafts.",
        "names": {"drafter": "sam_decoding"},
        "settings": {"drafter": {"max_draft_tokens": 10, "other_drafter": "eagle2 nodes=12"}},
        **COPY,
        "enough": 5,
    },
    "relaxed": {
        "title": "Nearly the best is good enough",
        "about": "Relaxed acceptance keeps what is among the 5 likeliest and within 0.4 of the best. The text changes.",
        "names": {"drafter": "draft_model", "acceptance": "relaxed"},
        "settings": {"drafter": {"max_draft_tokens": 5}, "acceptance": {"top_k": 5, "delta": 0.4}},
        "prompts": STORIES,
        "new": 64,
        "seed": 11,
        "level": "decisions",
    },
    "fly": {
        "title": "A rejection forgiven",
        "about": "FLy: where the target was unsure a rejection is forgiven, if the next two tokens pass. The text changes.",
        "names": {"drafter": "draft_model", "acceptance": "fly", "sampler": ["temperature"]},
        "settings": {
            "drafter": {"max_draft_tokens": 8},
            "acceptance": {"window": 2},
            "temperature": {"temperature": 0.8},
        },
        "prompts": STORIES,
        "new": 40,
        "seed": 11,
        "level": "decisions",
    },
    "ensemble": {
        "title": "Half the target, half the draft",
        "about": "Each drafted place has a mixture of both distributions, exactly. The text changes by a known amount.",
        "names": {"drafter": "draft_model", "acceptance": "static_ensemble", "sampler": ["temperature"]},
        "settings": {
            "drafter": {"max_draft_tokens": 5},
            "acceptance": {"target_weight": 0.5},
            "temperature": {"temperature": 0.8},
        },
        "prompts": STORIES,
        "new": 56,
        "seed": 11,
        "level": "decisions",
    },
    "synthetic": {
        "title": "Set rates, for timing only",
        "about": "Drafts stay at rates that were set, whatever the models say. This is not the model's text.",
        "names": {"drafter": "draft_model", "acceptance": "synthetic", "sampler": ["temperature"]},
        "settings": {
            "drafter": {"max_draft_tokens": 5},
            "acceptance": {"acceptance_rates": [0.8, 0.6, 0.45, 0.35, 0.25]},
            "temperature": {"temperature": 0.8},
        },
        "prompts": STORIES,
        "new": 40,
        "seed": 11,
        "level": "decisions",
    },
    "contrastive": {
        "title": "Of the likely ones the new one",
        "about": "Contrastive search: of five likely tokens the one whose state repeats the text least; all five in one pass.",
        "names": {"strategy": "contrastive_search"},
        "settings": {},
        "prompts": STORIES,
        "new": 40,
        "seed": 7,
        "level": "decisions",
    },
    "loop": {
        "title": "Round and round",
        "about": "Greedy decoding writes one method again and again: what was said is likelier, so it is said again.",
        "names": {},
        "settings": {},
        "prompts": ["class Dog:\n    def bark(self):\n        return"],
        "new": 84,
        "seed": 7,
        "level": "decisions",
    },
    "grammar": {
        "title": "A text that fits a schema",
        "about": "Asked for a story, bound to a JSON schema: only tokens of which a record can still be made stay.",
        "names": {"sampler": ["grammar", "greedy"]},
        "settings": {"grammar": {"dialect": "json", "definition": json.dumps(SCHEMA)}},
        "prompts": ["Tell me a story about Bertha from Toronto."],
        "chat": True,
        "new": 64,
        "seed": 7,
        "level": "decisions",
    },
    "aligned": {
        "title": "What follows, counted",
        "about": "ASAp: twelve texts are allowed; 22 are drawn, and each tells how much behind its tokens the rule refuses.",
        "names": {"strategy": "aligned", "sampler": ["grammar", "temperature"]},
        "settings": {
            "strategy": {"samples": 22},
            "grammar": {"definition": r" (girl|boy|dog|cat) named (Max|Sue|Tim)\."},
            "temperature": {"temperature": 1.0},
        },
        "prompts": ["Once upon a time, there was a little"],
        "new": 24,
        "seed": 1,
        "level": "decisions",
    },
    "pipeline": {
        "title": "Tokens in a pipeline",
        "about": "SPEED: after two of eight layers a token names the next one, which begins; a wrong one empties the pipeline.",
        "names": {"strategy": "speed"},
        "settings": {},
        **COPY,
        "new": 32,
    },
    "planned": {
        "title": "A search by a test",
        "about": "PG-TD: the likeliest text leaves out a sum; the 21st that is tried is worth 24, as it should.",
        "names": {"strategy": "planned"},
        "settings": {"strategy": {"tests": "24", "rollouts": 48}},
        "prompts": [NESTED.prompt],
        "chat": True,
        "new": 32,
        "enough": 1,
        "seed": 7,
        "level": "decisions",
    },
    "consensus": {
        "title": "Eight answers vote",
        "about": "Consensus: eight answers are drawn at once, and the most frequent one is the text, not the likeliest.",
        "names": {"strategy": "consensus", "sampler": ["temperature"]},
        "settings": {"strategy": {"samples": 8, "similarity": "exact"}, "temperature": {"temperature": 1.0}},
        "prompts": [SUM.prompt],
        "chat": True,
        "new": 24,
        "enough": 8,
        "seed": 7,
        "level": "decisions",
    },
    "units": {
        "title": "Sure tokens, taken unread",
        "about": "LUD: each pass also predicts the four tokens after the next; those with p of 0.6 or more stay, unchecked.",
        "model": "lab+lud",
        "names": {"strategy": "lexical_units"},
        "settings": {"strategy": {"min_probability": 0.6}},
        **COPY,
        "prompts": [
            '{"id": 891, "name": "Rufus", "city": "Cairo", "tags": ["blue"], "active": false}\nRepeat this.'
        ],
    },
    "joint": {
        "title": "Two tokens, one draw",
        "about": "DynaMo: the next token and the one after it are drawn as a pair, where a pair is likely enough.",
        "names": {"strategy": "joint_tokens", "sampler": ["temperature"]},
        "settings": {
            "strategy": {"max_tokens_per_pass": 2, "threshold": 0.25, "relative_threshold": 0.2},
            "temperature": {"temperature": 0.7},
        },
        "prompts": ["One day, a girl named"],
        "new": 40,
        "seed": 2,
        "level": "decisions",
    },
    "labels": {
        "title": "All labels at once",
        "about": "PaDeLLM-NER: person, job and colour are counted side by side, then each mention is written by itself.",
        "model": "lab+outline",
        "names": {"strategy": "label_parallel"},
        "settings": {"strategy": {"labels": "person\njob\ncolour"}},
        "prompts": [
            "Lena from Prague is a musician, has a ring and likes turquoise. Cedric is a doctor in Madrid and likes black.",
        ],
        "new": 96,
        "seed": 7,
        "level": "decisions",
        "enough": 6,
    },
    "lines": {
        "title": "A line in between",
        "about": "JumpCoder: lab-mdm proposes lines for earlier places, and one that makes what follows likelier goes in.",
        "names": {"strategy": "jump_coder"},
        "settings": {"strategy": {"syntax_check": "none", "tau": 0.1}},
        "prompts": ["On Sunday, Bertha and Oliver went to the"],
        "new": 93,
        "seed": 7,
        "level": "decisions",
        "enough": 5,
    },
    "edits": {
        "title": "A draft, edited all over",
        "about": "PIE: one pass drafts five names to shuffle; each further pass edits all places at once, until none changes.",
        "model": "lab-mdm",
        "names": {"strategy": "edit_tags"},
        "settings": {"strategy": {"block": 8}},
        "prompts": ["shuffle: Clara Ella Hugo Ada Iris ->"],
        "new": 8,
        "seed": 7,
        "level": "decisions",
        "enough": 1,
    },
    "extract": {
        "title": "The likeliest span",
        "about": "Exact-extract: all spans of the text are read as the answer; the likeliest is right, greedy decoding is not.",
        "names": {"strategy": "exact_extract"},
        "settings": {
            "strategy": {"passage_start": "<|user|>\n", "passage_end": "\n\nQuestion", "max_span_tokens": 8}
        },
        "prompts": [
            "Sam likes soup. Freya put the hammer on the highest shelf. On Monday Freya went to the workshop. "
            "Freya is a shepherd.\n\nQuestion: Who likes soup?",
        ],
        "chat": True,
        "new": 16,
        "seed": 7,
        "level": "decisions",
        "enough": 1,
    },
    "snapkv": {
        "title": "The last tokens vote",
        "about": "SnapKV: the prompt's last four tokens choose 20 of its entries; the other 50 leave, and the name stays.",
        "names": {"policy": "snapkv"},
        "settings": {"policy": {"prompt_budget": 20, "window": 4}},
        **RENAME,
        "new": 25,
    },
    "needle-kept": {
        "title": "A needle kept",
        "about": "Ada-KV: a quarter of a story stays, what the question looks at, and the number that it asks for is there.",
        "names": {"policy": "adakv"},
        "settings": {"policy": {"budget_share": 0.25}},
        **FOUND,
    },
    "needle-lost": {
        "title": "A needle lost",
        "about": "H2O: a quarter of the same story stays, what all tokens looked at most, and the number is not among it.",
        "names": {"policy": "h2o"},
        "settings": {"policy": {"budget_share": 0.25}},
        **FOUND,
    },
    "d2o": {
        "title": "Merged, not dropped",
        "about": "D2O: what leaves the cache becomes part of the entry that is most like it, and so the name outlives it.",
        "names": {"policy": "d2o"},
        "settings": {"policy": {"heavy": 24, "recent": 4}},
        **RENAME,
        "new": 28,
    },
    "cam": {
        "title": "Values handed on",
        "about": "CaM: what falls out of the window adds its value to the entries after it, as often as its attention says.",
        "names": {"policy": "cam"},
        "settings": {"policy": {"target_entries": 28, "merge_window": 8}},
        **RENAME,
        "new": 28,
    },
    "lag-kv": {
        "title": "Measured against what follows",
        "about": "LagKV: of every 16 tokens the half stays that stands out against the 16 after them.",
        "names": {"policy": "lag_kv"},
        "settings": {"policy": {"sink_tokens": 4, "lag": 16, "kept_share": 0.5}},
        **RENAME,
        "new": 28,
    },
    "key-diff": {
        "title": "Unlike the other keys",
        "about": "KeyDiff: each head keeps the 36 entries whose keys point away from the mean key; attention plays no part.",
        "names": {"policy": "key_diff"},
        "settings": {"policy": {"distinct_entries": 36, "recent": 4}},
        **RENAME,
        "new": 28,
    },
    "interval": {
        "title": "Cut every eight tokens",
        "about": "Interval eviction: the cache grows for eight tokens, then each head falls back to its best 40 entries.",
        "names": {"policy": "interval_eviction"},
        "settings": {"policy": {"scorer": "difference", "interval": 8, "target_entries": 40}},
        **RENAME,
        "new": 28,
    },
    "key-rerotation": {
        "title": "The gaps are closed",
        "about": "Half of the prompt leaves, and each head turns the keys that stay to adjacent positions.",
        "names": {"policy": "key_rerotation"},
        "settings": {"policy": {"budget_share": 0.5}},
        **RENAME,
        "new": 28,
    },
    "kivi": {
        "title": "Two bits a number",
        "about": "KIVI: keys and values are packed into integers of two bits, and the newest entries wait until there are 32.",
        "names": {"kv_compression": "kivi"},
        "settings": {"kv_compression": {"bits": "2", "group": 32, "buffer": 32}},
        **RENAME,
    },
    "quest": {
        "title": "Held, but not read",
        "about": "Quest: every entry stays, and each query head reads the three pages of 16 whose keys may answer it best.",
        "names": {"policy": "quest"},
        "settings": {"policy": {"token_budget": 48, "dense_layers": 2}},
        **RENAME,
    },
    "beam": {
        "title": "One cache for four texts",
        "about": "Beam search: four texts branch off one another, and what they have in common is held and read once.",
        "names": {"strategy": "beam"},
        "settings": {"strategy": {"width": 4, "attention_plan": "node"}},
        "prompts": STORIES,
        "new": 32,
        "seed": 7,
        "level": "decisions",
    },
    "gemfilter": {
        "title": "A shorter prompt",
        "about": "GemFilter: an early layer points at the tokens that matter, and the model reads only those.",
        "names": {"prompt_compression": "gemfilter"},
        "settings": {"prompt_compression": {"prompt_budget": 52, "layer": 5}},
        **RENAME,
        "new": 38,
    },
    "preview": {
        "title": "A rough answer first",
        "about": "Fast-CoT: three passes guess 16 tokens of the answer, which join the prompt. Here the guess misleads.",
        "names": {"prompt_compression": "fast_cot"},
        "settings": {"prompt_compression": {"preview_tokens": 16, "iterations": 3}},
        "prompts": [
            "Write this again with Bruno instead of Lena.\n"
            "Lena went to the park with a red kite. There Lena saw a dog.",
        ],
        "chat": True,
        "new": 36,
        "seed": 7,
        "level": "decisions",
    },
    "short-prompt": {
        "title": "What goes without saying",
        "about": "Selective Context: a small model reads the prompt first, and the phrases that it expects are left out.",
        "names": {"prompt_compression": "selective_context"},
        "settings": {"prompt_compression": {"reduce_ratio": 0.25}},
        **RENAME,
    },
    "duo-attention": {
        "title": "Half of the heads forget",
        "about": "DuoAttention: trained gates say which heads look far back; others hold the first 4 and newest 12 entries.",
        "names": {"policy": "duo_attention"},
        "settings": {"policy": {"streaming_share": 0.5, "recent": 12}},
        **RENAME,
    },
    "four-bits": {
        "title": "Four bits part from the whole",
        "about": "int4: every matrix in four bits a number. The whole model reads along and tells where it would differ.",
        "names": {},
        "settings": {},
        "model": "lab@int4",
        "reference": "model",
        "prompts": ["On Sunday, Bertha and Oliver went to the"],
        "new": 36,
        "seed": 7,
        "level": "decisions",
    },
    "fewer-heads": {
        "title": "Twelve heads are gone",
        "about": "Head sensitivity: of 48 heads the 12 that the loss feels least are cut out. Then the old name is back.",
        "names": {},
        "settings": {},
        "model": "lab@head_sensitivity",
        "reference": "model",
        **RENAME,
    },
    "fewer-blocks": {
        "title": "Two blocks less, another place",
        "about": "An attention and a feed-forward block are cut out, chosen on earlier weights; the whole model reads along.",
        "names": {},
        "settings": {},
        "model": "lab@cut_layers skip=a6,f4",
        "reference": "model",
        "prompts": ["On Sunday, Bertha and Oliver went to the"],
        "new": 39,
        "seed": 7,
        "level": "decisions",
    },
}
EXAMPLES = {**REAL, **EXAMPLES}  # the lists begin with those of the real model
ROUND = {"loop", "digit"}  # what they show goes round: a loop, cells that are white
# role -> the model beside the target; all but the draft only where a method asks for them
ROLES = {"draft": "lab-draft", "draft2": "lab-draft-plain", "infill": "lab-mdm"}
LARGEST = 300_000  # bytes of one file
REAL_LARGEST = 1_500_000  # bytes of all files of the real model


def is_real(name: str) -> bool:
    """Whether an example is one of the real model."""
    return EXAMPLES[name].get("model", "lab").partition("@")[0] == REAL_MODEL


def load_model(name: str) -> Any:
    """A shipped model in float32, or the real one as its file has it; either with its transforms."""
    base, at, transforms = name.partition("@")
    if base != REAL_MODEL:
        return load(name, "float32", "cpu")
    return load(f"{real_model_path()}{at}{transforms}", "float32", "cpu")


def roles_of(what: dict[str, Any]) -> dict[str, str]:
    """The models beside the target: those of the example, or the shipped ones."""
    roles: dict[str, str] = what.get("roles", ROLES)
    return roles


class WithoutLaws(LazyWriter):
    """Leaves out the whole distributions of level "full", which are most of its bytes; attention and states stay."""

    def write(self, record: Any) -> None:
        """As it is, but for those."""
        if isinstance(record, Step) and record.fields is not None:
            record = replace(record, fields=replace(record.fields, logits=None, laws=None, law_of=None))
        super().write(record)


def make(name: str, models: dict[str, Any]) -> dict[str, str]:
    """Record one example; its row of the index."""
    what, least, tried = EXAMPLES[name], EXAMPLES[name].get("enough", ENOUGH), list[str]()
    path = HERE / f"{name}.partial.dstrace"
    try:
        for prompt in what["prompts"]:
            session = record(path, what, prompt, models)
            share, size = again(path), path.stat().st_size
            if session.steps >= least and (share <= MOST or name in ROUND) and size <= LARGEST:
                os.replace(path, HERE / f"{name}.dstrace")
                break
            tried.append(
                f"{session.steps} steps, {share:.0%} said again, {size / 1000:.0f} kB behind {prompt[:40]!r}"
            )
        else:
            raise ValueError(
                f"{name}: {least} steps, at most {MOST:.0%} said again and {LARGEST // 1000} kB are due. Here are "
                f"{'; '.join(tried)}. Give it another prompt (python benchmarks/examples.py {name})."
            )
    finally:
        path.unlink(missing_ok=True)
    print(f"{name}.dstrace: {session.steps} steps, {size / 1000:.0f} kB", flush=True)
    row = {"name": name, "run": session.run_id, "title": what["title"], "about": what["about"]}
    return row | ({"model": REAL_MODEL} if is_real(name) else {})


def record(path: Path, what: dict[str, Any], prompt: str, models: dict[str, Any]) -> Session:
    """Run it into the file."""
    chat = what.get("chat", False)
    method = Method.from_names(what["names"], what["settings"])
    target = models[what.get("model", "lab")]
    session = Session(
        target,
        method,
        encode_text_or_ids(target, prompt, chat),
        models={
            role: models[name]
            for role, name in roles_of(what).items()
            if role == "draft" or role in method.lanes
        },
        max_new_tokens=what["new"],
        seed=what["seed"],
        chat=chat,
        turn=prompt if chat else "",
        level=what["level"],
        reference=what.get("reference", False),
    )
    session.run_id = hashlib.sha256(f"example {path.name.partition('.')[0]}".encode()).hexdigest()[:16]
    session.sink = WithoutLaws(path, overwrite=True)
    for _ in session.stream():
        pass
    return session


def again(path: Path) -> float:
    """The share of the 4-grams of a recorded text that is said again."""
    with closing(open_trace(path)) as trace:
        return repeated_share([token for step in trace.steps for token in step.emitted])


def current(name: str, fingerprints: dict[str, str]) -> bool:
    """Whether the models that recorded an example are those that lie there now, by name and fingerprint."""
    what = EXAMPLES[name]
    path, names = HERE / f"{name}.dstrace", {"target": what.get("model", "lab"), **roles_of(what)}
    if not path.exists():
        return False
    with closing(open_trace(path)) as trace:
        recorded = {"target": trace.header.model, **trace.header.lanes}
    return all(
        recorded[role]["fingerprint"] == fingerprints[x] for role, x in names.items() if role in recorded
    )


def main() -> None:
    """Record the examples that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="of an example; all without one and without --old"
    )
    parser.add_argument(
        "--old", action="store_true", help="also those whose models have other weights by now"
    )
    args = parser.parse_args()
    if strange := [name for name in args.names if name not in EXAMPLES]:
        parser.error(f"there is no example {strange[0]!r}: choose of {', '.join(EXAMPLES)}")
    bad, some = list[str](), list(EXAMPLES) if args.old else args.names or list(EXAMPLES)
    if not real_model_path().is_file() and (left := [name for name in some if is_real(name)]):
        some = [name for name in some if not is_real(name)]
        print(
            f"Left as they are, for {real_model_path()} is missing: {', '.join(left)}. Run decodescope models get {REAL_MODEL}."
        )
    named = {
        x for name in some for x in (EXAMPLES[name].get("model", "lab"), *roles_of(EXAMPLES[name]).values())
    }
    models = {name: load_model(name) for name in sorted(named)}
    index = HERE / "index.json"
    kept = {row["name"]: row for row in json.loads(index.read_text())} if index.exists() else {}
    fingerprints = {name: one.fingerprint for name, one in models.items()}
    for name in (x for x in some if not args.old or x in args.names or not current(x, fingerprints)):
        try:
            kept[name] = make(name, models)
        except ValueError as error:
            bad.append(str(error))
    held = sum(
        path.stat().st_size for x in EXAMPLES if is_real(x) and (path := HERE / f"{x}.dstrace").is_file()
    )
    if held > REAL_LARGEST:
        bad.append(
            f"The examples of {REAL_MODEL} have {held:,} bytes together; at most {REAL_LARGEST:,} are shipped."
        )
    words = {name: {x: what[x] for x in ("title", "about")} for name, what in EXAMPLES.items()}
    rows = [kept[name] | words[name] for name in EXAMPLES if name in kept]
    index.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if bad:
        raise SystemExit("\n".join(bad))


if __name__ == "__main__":
    main()
