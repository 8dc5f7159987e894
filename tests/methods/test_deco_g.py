"""Deco-G: if the model is the hidden Markov model, texts have its exact conditional distribution; all texts comply."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
import toys
from law.cases import PROPOSALS, models
from markov import random_markov, write_markov

from decodescope.engine import Method, MethodError, ParamError
from decodescope.engine.decoding.shared.hidden_markov import (
    HiddenMarkov,
    build_completion_weights,
    encode_hidden_markov,
    hash_tokens,
    load_hidden_markov,
)
from decodescope.engine.decoding.shared.token_automaton import build_byte_automaton, build_token_automaton
from decodescope.engine.decoding.values.alphabet import Alphabet
from decodescope.engine.methods.samplers.chain import chain_samplers
from decodescope.engine.methods.samplers.deco_g import DecoG
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.load import Model
from decodescope.testing.tables import PROMPT, Seen, memoize_logits, table_model
from decodescope.testing.walk import Walk, distribution_distance

PIECES = [b"a", b"b", b"ab", b"<end>"]
END = 3
ALPHABET = Alphabet(len(PIECES), frozenset({END}), frozenset({END}), lambda: PIECES)
FORMATS = ["a(ba)*b?b", "(a|b){3}", "[^b]+b", "(ab)?|b.*"]
EVERYTHING = r"(.|\n)*"


class Letters:
    """A tokenizer in which each id is one letter, or two."""

    marks = frozenset({END})

    def bytes_of(self, token: int) -> bytes:
        return PIECES[token]

    def piece(self, token: int) -> str:
        return PIECES[token].decode()


LETTERS = Letters()


@pytest.fixture
def markov_file(tmp_path: Path) -> tuple[str, HiddenMarkov]:
    """A file, and the model as the file holds it."""
    path = write_markov(tmp_path, ALPHABET)
    return path, load_hidden_markov(path, ALPHABET, "knob")


def chance_of(model: HiddenMarkov, text: tuple[int, ...]) -> float:
    """The probability that the first tokens are `text`, by the sum over all hidden paths."""
    total = 0.0
    for path in product(range(len(model.initial)), repeat=len(text)):
        p = 1.0
        for i, (h, token) in enumerate(zip(path, text, strict=True)):
            p *= float(model.transition[path[i - 1], h] if i else model.initial[h]) * float(
                model.emission[token, h]
            )
        total += p
    return total


def obeying_texts(pattern: str, most: int) -> list[tuple[int, ...]]:
    """All texts of the format that have ended by their stop token within `most` tokens, or are whole after exactly so many."""
    found = []
    for n in range(1, most + 1):
        for text in product(range(len(PIECES)), repeat=n):
            words = text[:-1] if text[-1] == END else text
            whole = END not in words and re.fullmatch(pattern, b"".join(PIECES[x] for x in words).decode())
            if whole and (text[-1] == END or n == most):
                found.append(text)
    return found


def next_logits(model: HiddenMarkov, text: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([chance_of(model, (*text, v)) for v in range(len(PIECES))], dtype=torch.float64).log()


@pytest.mark.parametrize("pattern", FORMATS)
def test_if_the_model_is_the_markov_model_texts_have_the_exact_conditional(
    pattern: str, markov_file: tuple[str, HiddenMarkov]
) -> None:
    path, model = markov_file
    sampler = DecoG(format=pattern, markov_file=path, max_tokens=3 if "." in pattern else 4)
    most = sampler.max_tokens
    texts = obeying_texts(pattern, most)
    chances = {text: chance_of(model, text) for text in texts}
    total = 0.0
    for text in texts:
        state, p = sampler.start([], len(PIECES), ALPHABET), 1.0
        for i, token in enumerate(text):
            logits = next_logits(model, text[:i])
            p *= float(sampler.warp(logits, state).softmax(-1)[token])
            state = sampler.update(state, token, logits)
        assert abs(p - chances[text] / sum(chances.values())) < 1e-12
        total += p
    assert len(texts) > 3 and abs(total - 1) < 1e-12, "no other text is possible"


def test_a_format_of_all_texts_changes_nothing(markov_file: tuple[str, HiddenMarkov]) -> None:
    sampler = DecoG(format=EVERYTHING, markov_file=markov_file[0], max_tokens=5)
    state = sampler.start([], len(PIECES), ALPHABET)
    for token in (0, 2, 1, 1):
        logits = torch.randn(len(PIECES), dtype=torch.float64)
        assert float((sampler.warp(logits, state).softmax(-1) - logits.softmax(-1)).abs().max()) < 1e-12
        state = sampler.update(state, token, logits)


@pytest.mark.parametrize("pattern", [*FORMATS, r"\w{2,3}", "b(a|ab|b)*", "[ab]|(?:ab){2}"])
def test_states_are_what_a_regular_expression_says(pattern: str) -> None:
    automaton = build_token_automaton(pattern, ALPHABET)
    for n in range(6):
        for text in product(range(END), repeat=n):
            state = 0
            for token in text:
                state = int(automaton.after[state, token])
            words = b"".join(PIECES[x] for x in text).decode()
            assert bool(automaton.accepts[state]) == bool(re.fullmatch(pattern, words)), words
            assert (int(automaton.after[state, END]) == automaton.end) == bool(automaton.accepts[state])


def test_characters_of_many_bytes_are_whole_and_equal_states_are_one() -> None:
    automaton = build_byte_automaton("é.[^a]")
    for text in ("éaß", "é😀語", "éa", "eab", "éba"):
        state = 0
        for byte in text.encode():
            state = int(automaton.after[state, byte]) if state >= 0 else -1
        assert (state >= 0 and bool(automaton.accepts[state])) == bool(re.fullmatch("é.[^a]", text)), text
    assert len(build_byte_automaton("(a|b)*|[ab]*").accepts) == 1


@pytest.mark.parametrize("name", ["chain", "one-hot tree", "2 without replacement, 2 deep"])
def test_drafts_do_not_change_the_distribution(name: str, markov_file: tuple[str, HiddenMarkov]) -> None:
    """The target is the Markov model, so the true distribution of texts is known without the sampler."""
    path, markov = markov_file

    def look(seen: Seen) -> torch.Tensor:
        return next_logits(markov, tuple(token for _, token in seen[len(PROMPT) :]))

    proposal, length = PROPOSALS[name], 3
    drafter = proposal.make(2)
    first = DecoG(format=FORMATS[0], markov_file=path, max_tokens=length)
    method = Method(
        drafter=drafter,
        acceptance=proposal.rule(),
        sampler=chain_samplers([first, Temperature(temperature=1.0)]),
    )
    given: dict[str, Model] = {
        role: replace(x, tokenizer=LETTERS)
        for role, x in models(len(PIECES), "mixed", drafter).items()  # type: ignore[arg-type]
    }
    given["target"] = replace(given["target"], decoder=table_model(memoize_logits(look), len(PIECES)).decoder)
    chances = {text: chance_of(markov, text) for text in obeying_texts(FORMATS[0], length)}
    true = {text: p / sum(chances.values()) for text, p in chances.items()}
    assert distribution_distance(Walk(method, given, length, (END,)).text_distribution(), true) < 1e-12


PATTERN = "[a-l]{2}(cd?)+"


def toy_method(path: str, **knobs: object) -> Method:
    settings = {"deco_g": {"format": PATTERN, "markov_file": path, "max_tokens": 7, **knobs}}
    return Method.from_names({"sampler": ["deco_g", "temperature"], "drafter": "prompt_lookup"}, settings)


@pytest.mark.parametrize("least", [0.0, 0.2])
def test_all_texts_comply_and_the_record_tells_of_weights_and_pruning(least: float) -> None:
    """Also with pruned hidden states, since a pruned belief still sees which tokens fit."""
    pruned = []
    for seed in range(4):
        run = toys.decode(toy_method(toys.MARKOV, min_belief=least), count=9, seed=seed)
        words = "".join(toys.LETTERS.piece(x) for x in run.end.tokens[:-1])
        assert re.fullmatch(PATTERN, words) and run.end.tokens[-1] == toys.LETTERS.end, words
        for step in run.sink.steps:
            pruned.append(step.sampler["pruned"])
            assert 0 <= step.sampler["left"] <= 7 and 0 < step.sampler["kept"] <= 1
            for _, alone, kept, weighed in step.sampler["weighed"]:
                assert 0 <= alone <= 1 and 0 <= kept <= 1 + 1e-12 and 0 <= weighed <= 1 + 1e-12
    assert any(pruned) == bool(least)


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"markov_file": ""}, "markov_file names no file; python -m decodescope.training.hidden_markov"),
        ({"format": "a("}, "deco_g.format: the format cannot be read at character 2: a group is not closed"),
        ({"format": "[a-l]{9}"}, "no text of the format has 7 tokens or fewer"),
        ({"format": "A"}, "no text of the format has 7 tokens or fewer"),
        ({"format": "[^\\x00-\\x7f]"}, "is not known"),
        ({"format": "(a|b)*a(a|b){12}"}, "more than 1000 states"),
        ({"format": "((a{200}){200}){200}"}, "too large"),
        ({"markov_file": toys.DATASTORE}, "no hidden Markov model"),
    ],
)
def test_what_cannot_be_is_one_sentence(knobs: dict[str, object], why: str) -> None:
    with pytest.raises((ParamError, MethodError), match=re.escape(why)):
        toys.decode(toy_method(toys.MARKOV, **knobs), count=3)


def test_a_file_of_another_model_or_with_an_impossible_token_is_refused(
    tmp_path: Path, markov_file: tuple[str, HiddenMarkov]
) -> None:
    others = Alphabet(4, frozenset({END}), frozenset({END}), lambda: [b"a", b"c", b"ab", b"<end>"])
    with pytest.raises(ParamError, match=r"knob = .*: made for a model with other tokens; python -m"):
        load_hidden_markov(markov_file[0], others, "knob")
    broken = random_markov(len(PIECES))
    broken.emission[0, 0] = 0.0
    path = tmp_path / "broken.hmm"
    path.write_text(encode_hidden_markov(broken, hash_tokens(ALPHABET)))
    with pytest.raises(ParamError, match="emission has a probability of 0"):
        load_hidden_markov(str(path), ALPHABET, "knob")


def test_long_fixed_texts_do_not_underflow(markov_file: tuple[str, HiddenMarkov]) -> None:
    """A text of 150 tokens has a probability below the smallest float when each is unlikely; a stop stays possible."""
    rare = random_markov(len(PIECES))
    emission = rare.emission * torch.tensor([1e-6, 1.0, 1.0, 1.0], dtype=torch.float64)[:, None]
    sampler = DecoG(format="a{150}", markov_file=markov_file[0], max_tokens=150)
    state = sampler.start([], len(PIECES), ALPHABET)
    weights = build_completion_weights(
        HiddenMarkov(rare.initial, rare.transition, emission / emission.sum(0)), state.weights.automaton, 150
    )
    assert -2500 < float(weights.scales[150][0]) < -1800
