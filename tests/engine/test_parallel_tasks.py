"""The tasks of ParallelBench: questions, scores, and the result of a perfect model that draws all slots at once."""

from fractions import Fraction
from random import Random

import pytest
from tokenizers import Tokenizer

from decodescope.engine.bench.questions.parallel_tasks import (
    EMPTY,
    LISTS,
    NAMES,
    SETTLED,
    SIDE,
    TASKS,
    Oracle,
    ParallelQuestion,
    all_orders,
    chance_at_once,
    draw_answer,
    is_right,
    is_right_text,
    latin_squares,
    make_question,
    make_questions,
    right_answers,
    sudoku_grids,
)
from decodescope.engine.session.load import SHIPPED

LENGTHS = {"sudoku": 6}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(SHIPPED / "lab" / "tokenizer.json"))


@pytest.mark.parametrize("task", TASKS)
def test_a_slot_is_one_token_and_the_prompt_does_not_change_the_answer(task, tokenizer):
    for q in make_questions([task], 20):
        for answer in list(right_answers(q))[:5]:
            text = "".join(f" {word}" for word in answer)
            ids = tokenizer.encode(text).ids
            assert len(ids) == q.slots == len(answer)
            assert tokenizer.encode(q.prompt + text).ids == tokenizer.encode(q.prompt).ids + ids


@pytest.mark.parametrize("task", TASKS)
def test_all_answers_are_right_and_any_other_that_differs_in_one_slot_is_not(task):
    for q in make_questions([task], 10):
        those = set(right_answers(q))
        assert len(those) == len(list(right_answers(q)))
        for answer in sorted(those)[:10]:
            assert is_right(q, answer)
            assert is_right_text(q, " " + " ".join(answer) + "\n")
            assert not is_right_text(q, " ".join([*answer, answer[0]]))
            for at in range(len(answer)):
                other = (*answer[:at], "Nobody", *answer[at + 1 :])
                assert not is_right(q, other)
        assert not is_right(q, ())


@pytest.mark.parametrize("task", LISTS)
def test_right_is_exactly_the_answers_that_are_listed(task):
    q = make_question(task, Random(3), 3)
    words = [*q.items, *([q.word] if q.word else [])]
    size = q.slots
    every = [()]
    for _ in range(size):
        every = [(*a, word) for a in every for word in words]
    assert {a for a in every if is_right(q, a)} == set(right_answers(q))


@pytest.mark.parametrize("task", TASKS)
def test_a_drawn_answer_is_any_of_the_right_ones(task):
    q, r = make_question(task, Random(1), LENGTHS.get(task, 3)), Random(2)
    some = {draw_answer(q, r) for _ in range(300)}
    every = set(right_answers(q))
    assert some <= every
    assert len(some) == len(every) if len(every) < 10 else len(some) > 150


def test_a_shuffled_list_must_differ_and_a_replaced_word_counts_where_it_first_stands():
    assert not is_right_text(ParallelQuestion("shuffle", ("Ada", "Ben")), "Ada Ben")
    assert is_right_text(ParallelQuestion("shuffle", ("Ada", "Ben")), "Ben Ada")
    replace = ParallelQuestion("replace_random", ("Ada", "Ben", "Leo"), "Zoe")
    assert is_right_text(replace, "Ada Zoe Leo")
    assert not is_right_text(replace, "Zoe Zoe Leo")
    assert not is_right_text(replace, "Ada Ben Leo")


def test_the_same_seed_gives_the_same_questions_and_lengths_are_obeyed():
    assert (
        make_questions(TASKS, 3, seed=1)
        == make_questions(TASKS, 3, seed=1)
        != make_questions(TASKS, 3, seed=2)
    )
    assert [q.length for q in make_questions(["sort"], 6, lengths=(3, 5))] == [3, 5] * 3
    assert {q.length for q in make_questions(["sudoku"], 4, lengths=(7,))} == {7}


def test_a_sudoku_has_one_solution_and_there_are_as_many_grids_as_is_known():
    assert (len(latin_squares()), len(sudoku_grids())) == (576, 288)
    for q in make_questions(["sudoku"], 10, lengths=(8,)):
        assert q.items.count(EMPTY) == 8
        assert len(list(right_answers(q))) == 1


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("task", LISTS)
def test_a_perfect_model_that_draws_all_at_once_meets_the_closed_form(task, n):
    q = make_question(task, Random(n), n)
    law = Oracle(all_orders(q) if task == "shuffle" else right_answers(q))
    assert law.chance_at_once(q) == chance_at_once(task, n)
    if task == "shuffle":
        own = law.marginals()
        kept = Fraction(1)
        for slot, word in zip(own, q.items, strict=True):
            kept *= slot[word]
        assert law.chance_at_once(q) + kept == chance_at_once(task, n, differs=False)


def test_the_closed_forms_are_those_of_the_table():
    rounded = {
        task: [round(float(chance_at_once(task, n)), 3) for n in (2, 3, 4, 5, 6)]
        for task in ("replace_random", "shuffle")
    }
    assert rounded["replace_random"] == [0.5, 0.444, 0.422, 0.41, 0.402]
    assert rounded["shuffle"] == [0.25, 0.185, 0.09, 0.038, 0.015]
    assert [round(float(chance_at_once("shuffle", n, differs=False)), 3) for n in (2, 3, 4)] == [
        0.5,
        0.222,
        0.094,
    ]
    assert {chance_at_once(task, 5) for task in SETTLED} == {1}


@pytest.mark.parametrize("task", TASKS)
def test_a_perfect_model_that_draws_one_slot_at_a_time_is_always_right(task):
    r = Random(0)
    for q in make_questions([task], 5, lengths=(LENGTHS.get(task, 4),)):
        law, given = Oracle(right_answers(q)), {}
        for at in r.sample(range(q.slots), q.slots):
            slot = law.marginals(given)[at]
            given[at] = r.choices(list(slot), [float(p) for p in slot.values()])[0]
        assert is_right(q, [given[i] for i in range(q.slots)])


def test_a_latin_square_at_once_is_hopeless():
    q = make_question("latin_square", Random(0))
    assert Oracle(right_answers(q)).chance_at_once(q) == Fraction(576, SIDE ** (SIDE * SIDE))


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match="no task 'juggle'"):
        make_question("juggle", Random(0))
    with pytest.raises(ValueError, match="copy cannot have the length 1"):
        make_question("copy", Random(0), 1)
    with pytest.raises(ValueError, match="sudoku cannot have the length 16"):
        make_question("sudoku", Random(0), 16)
    with pytest.raises(ValueError, match="no closed form"):
        chance_at_once("sudoku", 4)
    with pytest.raises(ValueError, match="No answer agrees"):
        Oracle(all_orders(ParallelQuestion("shuffle", NAMES[:2]))).marginals({0: "Zoe"})
    with pytest.raises(ValueError, match="all of one length"):
        Oracle([])
