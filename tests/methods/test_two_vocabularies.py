"""Drafts by a model with another vocabulary: TLI and universal assisted decoding."""

from __future__ import annotations

import pytest
import torch
import toys
from two_vocabularies import (
    DRAFT,
    LETTERS,
    MARK,
    PROMPT,
    TARGET,
    letter_pair,
    pair_session,
    small_tokenizer,
    toy_model,
    unequal_pair,
)

from decodescope.engine.core.component import build
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.decoding.values.vocabulary_map import TranslatedText, VocabularyMap
from decodescope.engine.methods.drafters.draft_model.tli import TLI
from decodescope.engine.methods.drafters.draft_model.universal_assisted import UniversalAssisted
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.load import SHIPPED
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check
from decodescope.testing.contracts.drafters import collect_proposals, read_alone
from decodescope.testing.reference import Warp, temperature, text_distribution
from decodescope.testing.tables import draft_table, logit_table, table_model
from decodescope.testing.walk import Walk, distribution_distance

BOTH = ("tli", "universal_assisted")
SHARED = [x for x in DRAFT if x in TARGET]


def drafts(session) -> list[Draft]:
    return [draft for draft, _ in collect_proposals(session)]


@pytest.mark.parametrize("drafter", BOTH)
@pytest.mark.parametrize("prompt", [PROMPT, [8]])
def test_greedy_text_is_plain_decodings_token_by_token(drafter: str, prompt: list[int]) -> None:
    pair = unequal_pair()
    session = pair_session(pair, drafter, prompt=prompt)
    session.sink = Trace()
    made = [x for x in drafts(session) if x.tokens]
    assert session.tokens[len(prompt) :] == toys.greedy_text(pair[0].decoder, prompt, 24)
    report = check(session.sink)
    assert report.ok, str(report)
    assert session.header.lossless and session.header.lanes["draft"]["shared_tokens"] == len(SHARED)
    assert made and any(len(step.path or ()) for step in session.sink.steps), "the test needs accepted tokens"
    assert any(step.draft and len(step.path) < len(step.draft.tokens) for step in session.sink.steps)


def own_text(ids: list[int]) -> list[int]:
    """A text of the target in ids of the draft model: what stands between marks is encoded as a whole."""
    own, parts = small_tokenizer(DRAFT), [list[int]()]
    for token in ids:
        parts.append([]) if token == TARGET.index(MARK) else parts[-1].append(token)
    texts = [b"".join(small_tokenizer(TARGET).bytes_of(x) for x in part) for part in parts]
    return [x for text in texts for x in (*own.encode_bytes(text), DRAFT.index(MARK))][:-1]


def test_tli_draws_from_the_draft_models_distribution_over_the_intersection_alone() -> None:
    """The reference reads the draft model's own text from its beginning, and normalises its softmax over the tokens of both."""
    _, draft = pair = unequal_pair()
    session = pair_session(pair, "tli", "temperature")
    session.start()
    seen, propose = [], session.drafter.propose
    session.drafter.propose = lambda ctx: seen.append((list(ctx.tokens), propose(ctx))) or seen[-1][1]
    while not session.is_done:
        session.step()
    inside = [TARGET.index(x) for x in SHARED]
    outside = [i for i in range(len(TARGET)) if i not in inside]
    T = session.sampler.temperature
    cut, rows = 0, 0
    for text, made in seen:
        own = own_text(text)
        for node, token in enumerate(made.tokens):
            logits, law = read_alone(draft.decoder, [own])[0], made.law(node)
            places = [DRAFT.index(x) for x in SHARED]
            q, share = (logits / T).softmax(-1)[places], float(logits.softmax(-1)[places].sum())
            assert float(law[outside].abs().sum()) == 0 and float(law.sum()) == pytest.approx(1, abs=1e-12)
            assert torch.allclose(law[inside], q / q.sum(), atol=1e-9)
            assert made.notes["shared"][node] == pytest.approx(share, abs=1e-4)
            cut, rows = cut + (share < 0.99), rows + 1
            own = [*own, DRAFT.index(TARGET[token])]
    assert rows > 25 and cut > 8, "the test needs probability outside of the intersection"


def drafter_law(drafter, sampler_T: float = 0.7) -> tuple[float, Walk]:
    """How far the law of whole runs with tables as models is from the target's; the draft lacks a letter and has another."""
    table = logit_table(3, seed=1)
    target, draft = table_model(table, 3), table_model(draft_table("mixed", table, 3), 3)
    target.tokenizer, draft.tokenizer = small_tokenizer([*"abc"]), small_tokenizer([*"cxb"])
    method = Method(drafter=drafter, sampler=build("sampler", "temperature", {"temperature": sampler_T}))
    walk = Walk(method, {"target": target, "draft": draft}, 3)
    due = text_distribution(table, Warp([lambda z, text: temperature(z, text, sampler_T)]), [1, 2, 1], 3, 3)
    return distribution_distance(walk.full_run_distribution(), due), walk


@pytest.mark.parametrize(
    "drafter", [TLI(max_draft_tokens=2), UniversalAssisted(max_draft_tokens=2)], ids=BOTH
)
def test_law_of_the_text_is_the_targets(drafter) -> None:
    difference, walk = drafter_law(drafter)
    assert difference <= 1e-12
    assert walk.kept > 1 and walk.refused > 1


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_tli_with_equal_tokenizers_is_draft_model_to_the_bit(sampler: str) -> None:
    same = letter_pair(list(range(13)))
    one, two = (drafts(pair_session(same, name, sampler)) for name in ("tli", "draft_model"))
    assert [x.tokens for x in one] == [x.tokens for x in two] and len(one) > 5
    assert all((x.q is None and y.q is None) or torch.equal(x.q, y.q) for x, y in zip(one, two, strict=True))
    assert [x.u for x in one] == [x.u for x in two]


ORDER = [7, 3, 12, 0, 5, 1, 9, 2, 11, 4, 10, 6, 8]


@pytest.mark.parametrize(
    ("drafter", "other"), [("tli", {}), ("universal_assisted", {"draft_temperature": 0.0})]
)
def test_other_numbers_for_the_same_letters_change_no_draft(drafter: str, other: dict) -> None:
    """The draft model's ids are permuted; its drafts are those of `draft_model` with the ids of the target."""
    plain = letter_pair(list(range(13)))
    one = drafts(pair_session(letter_pair(ORDER), drafter, max_draft_tokens=5))
    two = drafts(pair_session(plain, "draft_model", max_draft_tokens=5, **other))
    assert [x.tokens for x in one] == [x.tokens for x in two] and sum(map(len, one)) > 20


def test_the_draft_model_reads_again_only_from_where_its_tokens_differ() -> None:
    session = pair_session(unequal_pair(), "tli")
    session.sink = Trace()
    toys.finish_session(session)
    read = [
        x.tokens
        for step in session.sink.steps
        for x in step.passes
        if x.lane == "draft" and x.phase == "catch_up"
    ]
    assert max(read) <= 8, "of up to 36 tokens, those at the end"


def test_growing_text_is_encoded_as_a_whole_one_at_every_character() -> None:
    """A target of single characters grows by one; the shipped tokenizer would encode each text from its beginning alike."""
    text = (
        "Once upon a time, there was a little girl named Susan. " * 3
        + "\n\ndef area(r):\n    return 3.14 * r**2  # pi\n"
    )
    letters = sorted({*text})
    target, own = small_tokenizer(letters), Tokenizer.from_folder(SHIPPED / "lab-draft")
    growing = TranslatedText(VocabularyMap(target, own, len(letters), own.vocab))
    ids = [letters.index(x) for x in text]
    for length in range(1, len(ids) + 1):
        assert growing.encode(ids[:length]) == own.encode(text[:length]), text[:length][-20:]
    assert growing.encode(ids[:40]) == own.encode(text[:40]), "a text that goes back is read anew"


def test_half_a_character_is_read_in_bytes_or_not_at_all() -> None:
    target = small_tokenizer(TARGET)
    able = TranslatedText(VocabularyMap(target, small_tokenizer(DRAFT), 13, 12))
    first, second = TARGET.index("<0xC3>"), TARGET.index("<0xA9>")
    assert [DRAFT[x] for x in able.encode([0, first])] == ["a", "<0xC3>"]
    assert [DRAFT[x] for x in able.encode([0, first, second, 1])] == ["a", "<0xC3>", "<0xA9>", "b"]
    unable = TranslatedText(VocabularyMap(target, small_tokenizer([*"abcdé"]), 13, 5))
    assert unable.encode([0, first]) == [] and unable.encode([0, first, second]) == [0, 4]
    assert unable.encode([0, first, second, 1]) == [0, 4, 1]


def test_a_draft_ends_before_half_a_character_that_the_target_has_no_tokens_for() -> None:
    words = VocabularyMap(small_tokenizer([*"abcd"]), small_tokenizer(DRAFT), 4, 12)
    assert words.to_target_tokens([0], [DRAFT.index(x) for x in ("b", "cd", "<0xC3>")]) == [1, 2, 3]
    assert words.to_target_tokens([0], [DRAFT.index("<0xC3>")]) == []


def test_marks_are_the_same_mark_or_left_out() -> None:
    mark = TARGET.index("<end>")
    both = TranslatedText(VocabularyMap(small_tokenizer(TARGET), small_tokenizer(DRAFT), 13, 12))
    assert [DRAFT[x] for x in both.encode([0, mark, 1])] == ["a", "<end>", "b"]
    none = TranslatedText(VocabularyMap(small_tokenizer(TARGET), small_tokenizer([*"abcd "]), 13, 5))
    assert none.encode([0, mark, 1]) == [0, 1]
    words = both.vocabulary
    wrote = [DRAFT.index(x) for x in ("bc", "<end>", "a")]
    assert [TARGET[x] for x in words.to_target_tokens([0], wrote)] == ["b", "c", "<end>"]


def test_a_continuation_is_cut_as_the_target_cuts_it_behind_the_text() -> None:
    words = VocabularyMap(small_tokenizer(TARGET), small_tokenizer(DRAFT), 13, 12)
    spell = lambda ids: [TARGET[x] for x in ids]  # noqa: E731
    assert spell(words.encode_continuation([TARGET.index("c")], b" ab")) == [" ab"]
    assert spell(words.encode_continuation([0], b"bcd")) == ["b", "cd"], (
        "'ab' + 'cd' would change the committed 'a'"
    )


def test_pairs_are_refused_by_other_drafters_and_without_a_token_in_common() -> None:
    target, draft = unequal_pair()
    with pytest.raises(
        MethodError,
        match="same tokenizer, the drafter tli or universal_assisted, which translates, or a method",
    ):
        pair_session((target, draft), "draft_model")
    foreign = toy_model(list("efghijklmnop"), draft.decoder)
    for drafter in BOTH:
        with pytest.raises(MethodError, match="their tokenizers have no token in common"):
            pair_session((target, foreign), drafter)


@pytest.mark.parametrize("drafter", BOTH)
def test_a_branch_goes_on_as_the_run_would(drafter: str) -> None:
    session = pair_session(unequal_pair(), drafter, "temperature")
    for _ in range(4):
        session.step()
    twin = session.branch()
    while not session.is_done:
        session.step()
    while not twin.is_done:
        twin.step()
    assert twin.tokens == session.tokens


def test_a_draft_model_that_reads_less_than_the_text_stops_drafting() -> None:
    target, draft = unequal_pair()
    short = draft.decoder
    short.spec = toys.toy_spec(vocab=len(DRAFT), max_positions=20, name="short")
    for drafter in BOTH:
        session = pair_session((target, draft), drafter)
        made = drafts(session)
        assert session.tokens[len(PROMPT) :] == toys.greedy_text(target.decoder, PROMPT, 24)
        assert made[0].tokens and not made[-1].tokens


def test_letters_are_all_shared() -> None:
    one, two = small_tokenizer(LETTERS), small_tokenizer([LETTERS[i] for i in ORDER])
    assert one.shared_ids(two) == [(i, ORDER.index(i)) for i in range(13)]


def test_the_intersection_is_that_of_transformers() -> None:
    import tokenizers
    import transformers

    def fast(tokenizer: Tokenizer) -> object:
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer._spec)
        )

    from transformers.generation.candidate_generator import AssistantToTargetTranslator

    one, two = small_tokenizer(TARGET), small_tokenizer(DRAFT)
    theirs = AssistantToTargetTranslator(fast(one), fast(two), len(TARGET), None)
    assert dict(one.shared_ids(two)) == theirs.target_to_assistant_input_ids
    words = VocabularyMap(one, two, len(TARGET), len(DRAFT))
    logits = torch.randn(2, len(DRAFT), generator=torch.Generator().manual_seed(0))
    want = theirs.get_target_logits(logits)
    ours = words.to_target_logits(logits)
    assert torch.equal(ours.isneginf(), want <= -1e30) or torch.equal(ours.isneginf(), want.isneginf())
    assert torch.equal(ours[~ours.isneginf()], want[~ours.isneginf()])


@pytest.mark.parametrize("drafter", BOTH)
def test_a_fork_reads_the_text_again_and_goes_on_alike(drafter: str) -> None:
    target, draft = pair = unequal_pair()
    session = pair_session(pair, drafter, "temperature")
    session.sink = Trace()
    toys.finish_session(session)
    header, steps = session.sink.header, session.sink.steps
    fork = Fork(target, header, list(steps), 3, models={"draft": draft})
    assert toys.finish_session(fork).tokens == session.tokens
    other = Method.of({"drafter": BOTH[drafter == "tli"], "sampler": "temperature"})
    changed = toys.finish_session(Fork(target, header, list(steps), 3, models={"draft": draft}, method=other))
    assert changed.tokens[: steps[3].n] == session.tokens[: steps[3].n]
    assert changed.header.lanes["draft"]["shared_tokens"] == len(SHARED)
