"""A text under a grammar: masks equal those by trying all strings, a stop needs a whole text, and texts parse."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product

import pytest
import torch
import toys
from lark import Lark
from sizes import sizes

from decodescope.engine import Method, MethodError, ParamError, Session, load
from decodescope.engine.decoding.shared.recogniser import GrammarPath, Recogniser
from decodescope.engine.decoding.values.alphabet import Alphabet
from decodescope.engine.methods.samplers.grammar import Grammar
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check

PIECES = [b"a", b"b", b"<end>", b"ab", b"aa", b"aab", b"abb", b"bb", b"<#8>", b"\n"]
END = 2
ALPHABET = Alphabet(len(PIECES), frozenset({END}), frozenset({END}), lambda: PIECES)
STRINGS = ["".join(x) for n in range(11) for x in product("ab", repeat=n)] + [
    "a" * n + "b" * n for n in range(6, 11)
]


def balanced(text: str) -> bool:
    return bool(text) and text == "a" * (len(text) // 2) + "b" * (len(text) // 2)


LANGUAGES = {
    "a(ab)*": ("regex", re.compile("a(ab)*").fullmatch),
    "(a|b)*a(a|b)": ("regex", re.compile("(a|b)*a(a|b)").fullmatch),
    "aab|abb|/?": ("regex", re.compile("aab|abb|/?").fullmatch),
    'start: "a" start "b" | "ab"': ("lark", balanced),
    'start: x\nx: "a" x "b" | "a" "b"': ("lark", balanced),
    'start: A* b\nA: "a"\nb: "b" b | "b"': ("lark", re.compile("a*b+").fullmatch),
}


@pytest.mark.parametrize("text", LANGUAGES)
def test_masks_are_what_trying_all_strings_gives(text: str) -> None:
    """After every path whose text has at most 6 characters, in an order in which the matcher has to move back and forth."""
    dialect, belongs = LANGUAGES[text]
    words = {x for x in STRINGS if belongs(x)}
    begun = {x[:i] for x in words for i in range(len(x) + 1)}
    recogniser = Recogniser(text, dialect, ALPHABET)
    waiting, seen = [(recogniser.root, "")], 0
    while waiting:
        path, string = waiting.pop(len(waiting) // 2)
        due = [
            x
            for x, piece in enumerate(PIECES)
            if (string in words if x == END else string + piece.decode() in begun)
        ]
        if len(string) > 5:
            continue
        assert recogniser.mask(path).nonzero()[:, 0].tolist() == due, string
        assert due or string in words
        seen += 1
        waiting += [(path.with_token(x), string + PIECES[x].decode()) for x in due if x != END]
    assert seen > 12, "the test needs paths"


def test_equal_paths_are_one_and_closed_behind_a_stop_and_behind_what_does_not_fit() -> None:
    root = Recogniser("ab*", "regex", ALPHABET).root
    assert root.with_token(0).with_token(1) is root.with_token(0).with_token(1) and root.with_token(0).open
    closed = [
        root.with_token(1),
        root.with_token(0).with_token(END),
        root.with_token(1).with_token(0),
        root.with_token(8),
    ]
    assert not any(x.open for x in closed)
    logits = torch.randn(len(PIECES))
    assert all(torch.equal(Grammar(definition="ab*").warp(logits, x), logits) for x in closed), (
        "nothing there is ever written"
    )


def test_forced_tokens_are_those_that_stand_alone() -> None:
    root = Recogniser("b\n\nb|b", "regex", ALPHABET).root
    assert [*root.recogniser.forced_tokens(root, 16)] == [1], "then the text may end, too"
    behind = root.with_token(1).with_token(9)
    assert [*root.recogniser.forced_tokens(behind, 16)] == [9, 1] and [
        *root.recogniser.forced_tokens(behind, 1)
    ] == [9]


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_any_text_is_the_models_own(sampler: str) -> None:
    """The toy's texts are letters only: a grammar of all texts removes only its mark, and nothing if the mark is allowed."""
    any_text = {"grammar": {"definition": "(?s:.*)"}}
    methods = [
        Method.from_names({"sampler": sampler}),
        Method.from_names({"sampler": ["grammar", sampler]}, any_text),
    ]
    big = toys.add_tokenizer(toys.pair()[0])
    runs = [
        toys.finish_session(Session(big, method, toys.PROMPT, max_new_tokens=24, seed=4))
        for method in methods
    ]
    assert runs[0].end.tokens == runs[1].end.tokens and len(runs[0].end.tokens) > 4


def test_the_record_tells_of_masks_and_forced_runs() -> None:
    method = Method.from_names({"sampler": ["grammar", "greedy"]}, {"grammar": {"definition": "a(bcd|efg)h"}})
    run = toys.decode(method)
    steps = [step.sampler for step in run.sink.steps]
    assert [x["allowed"] for x in steps] == [1, 2, 1, 1, 1, 1] and [x["forced"] for x in steps] == [
        1,
        0,
        3,
        2,
        1,
        0,
    ]
    assert steps[0]["mask_us"] > 0 and check(run.sink).ok and run.end.reason == "stop_token"
    assert re.fullmatch("a(bcd|efg)h<end>", toys.LETTERS.decode(run.end.tokens))


def test_the_mass_refused_is_what_the_model_gave_to_tokens_that_do_not_fit() -> None:
    recogniser, logits = Recogniser("a(ab)*", "regex", ALPHABET), torch.randn(len(PIECES))
    for path, fits in ((recogniser.root, [0, 4, 5]), (recogniser.root.with_token(0), [0, 2, 3])):
        p = logits.double().softmax(-1)
        due = pytest.approx(1 - float(p[fits].sum()), abs=1e-6)
        assert Grammar(definition="a(ab)*").logits_summary(logits, path) == {"refused": due}
        for stages in (["greedy"], ["temperature", "top_k"]):
            chain = Method.from_names({"sampler": ["grammar", *stages]}).sampler
            assert (chain.logits_summary(logits, [path] + [None] * len(stages)) or {})["refused"] == due
    assert Grammar(definition="a(ab)*").logits_summary(logits, recogniser.root.with_token(1)) is None, (
        "nothing there is ever written"
    )


def test_drafts_under_the_sampler_fit_and_others_are_refused() -> None:
    knobs = {"grammar": {"definition": "([a-c]{2}k)*"}}
    for drafter, refuses in (("draft_model", False), ("token_recycling", True)):
        run = toys.decode(
            Method.from_names({"drafter": drafter, "sampler": ["grammar", "greedy"]}, knobs), count=24
        )
        plain = toys.decode(Method.from_names({"sampler": ["grammar", "greedy"]}, knobs), count=24)
        assert run.end.tokens == plain.end.tokens and check(run.sink).ok
        drafts = [toys.LETTERS.decode(step.draft.tokens) for step in run.sink.steps if step.draft is not None]
        assert drafts and any(re.search("[d-jl]", x) for x in drafts) is refuses


def test_a_branch_goes_on_as_the_run_does() -> None:
    method = Method.from_names(
        {"sampler": ["grammar", "temperature"]}, {"grammar": {"definition": "([a-c]{2}k)+"}}
    )
    session = Session(toys.add_tokenizer(toys.pair()[0]), method, toys.PROMPT, max_new_tokens=24, seed=2)
    for _ in range(5):
        session.step()
    twin = session.branch()
    assert toys.finish_session(twin).tokens == toys.finish_session(session).tokens


# ---- texts of the shipped model

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,9}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {
            "type": "array",
            "items": {"enum": ["cake", "the sea", "dogs"]},
            "minItems": 1,
            "maxItems": 3,
        },
        "kind": {"type": "boolean"},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
STORY = r"[A-Z][a-z]{1,8} (was|is) (very )?(happy|sad|\d{1,3} years old)[.!]"
RULES = 'start: thing ("," " " thing)* "."\nthing: WORD | "(" start ")"\nWORD: /[a-z]{2,7}/'


def is_json(text: str) -> bool:
    read = json.loads(text)
    likes = read["likes"]
    person = (
        re.fullmatch("[A-Z][a-z]{1,9}", read["name"]) and type(read["age"]) is int and 0 <= read["age"] <= 120
    )
    rest = (
        1 <= len(likes) <= 3
        and {*likes} <= {"cake", "the sea", "dogs"}
        and type(read.get("kind", True)) is bool
    )
    return bool(person) and rest and read.keys() <= SCHEMA["properties"].keys()


def is_rules(text: str) -> bool:
    return parser().parse(text) is not None


@cache
def parser() -> Lark:
    return Lark(RULES)


KINDS = {
    "regex": (STORY, lambda text: re.fullmatch(STORY, text) is not None),
    "json": (json.dumps(SCHEMA), is_json),
    "lark": (RULES, is_rules),
}


@cache
def lab() -> Model:
    return load("lab")


@sizes("count", usual=20, full=1000)
def test_texts_of_the_shipped_model_parse(count: int) -> None:
    """Parsed by independent parsers; every second run drafts. A text that the limit cut need not be complete."""
    model, whole = lab(), dict.fromkeys(KINDS, 0)
    for seed in range(count):
        kind = [*KINDS][seed % 3]
        text, parses = KINDS[kind]
        parts = {"sampler": ["grammar", "temperature"], "drafter": ("none", "token_recycling")[seed % 2]}
        method = Method.from_names(parts, {"grammar": {"definition": text, "dialect": kind}})
        prompt = model.tokenizer.encode("Once upon a time there was a child. ")
        run = Session(model, method, prompt, max_new_tokens=80, seed=seed, level="summary")
        for _ in run.stream():
            pass
        if run.end.reason == "stop_token":
            assert run.end.tokens[-1] in model.stop_tokens and parses(
                model.tokenizer.decode(run.end.tokens[:-1])
            )
            whole[kind] += 1
    assert all(x > count // 5 for x in whole.values()), whole


# ---- what a user can get wrong

REFUSED = {
    (
        "[a",
        "regex",
    ): r"^grammar\.definition cannot be read as regex \(unclosed character class\): write it without look-around",
    (
        "(?=a)b",
        "regex",
    ): r"^grammar\.definition cannot be read as regex \(look-around, .*not supported\): write it without ",
    ("{", "json"): r"^grammar\.definition is no JSON \(.*\): write a schema such as ",
    (
        '{"type": "foo"}',
        "json",
    ): r'^grammar\.definition is no JSON schema: "foo" is none of .* \(enum\), at \$\.type: correct it\.$',
    (
        'start: "a" b',
        "lark",
    ): r"^grammar\.definition cannot be read as lark \(.*\): write it with a rule `start`\.$",
}


@pytest.mark.parametrize(("text", "dialect"), REFUSED)
def test_a_grammar_that_cannot_be_read_is_refused_in_one_sentence(text: str, dialect: str) -> None:
    with pytest.raises(MethodError, match=REFUSED[text, dialect]) as refusal:
        toys.decode(toys.method(sampler=("grammar", {"definition": text, "dialect": dialect})))
    assert "\n" not in str(refusal.value)


def test_models_runs_and_neighbours_that_it_cannot_work_with_are_refused() -> None:
    big = toys.pair()[0]
    grammar = toys.method(sampler=("grammar", {"definition": "a+"}))
    with pytest.raises(MethodError, match=r"^toy has no tokenizer, so grammar cannot read its text"):
        Session(big, grammar, toys.PROMPT)
    with pytest.raises(ParamError, match="this run has none"):
        Session(toys.add_tokenizer(big), grammar, toys.PROMPT, stop_tokens=[])
    with pytest.raises(
        ParamError, match=r"^No token of this model goes on as the grammar demands at its beginning"
    ):
        toys.decode(toys.method(sampler=("grammar", {"definition": "A+"})))
    with pytest.raises(
        MethodError, match=r"^top_k removes tokens before grammar sees them.*let grammar come first"
    ):
        toys.decode(Method.from_names({"sampler": ["top_k", "grammar"]}))
    with pytest.raises(
        MethodError, match=r"^judge may keep a token that the grammar refuses; choose the acceptance lossless"
    ):
        toys.decode(toys.method(acceptance="judge", drafter="draft_model", sampler="grammar"))
    with pytest.raises(MethodError, match=r"^contrastive removes tokens, .*: choose guidance own\.$"):
        toys.decode(toys.method(guidance="contrastive", sampler="grammar"))


def test_a_text_that_cannot_go_on_ends_the_run_with_the_place() -> None:
    run = Session(
        toys.add_tokenizer(toys.pair()[0]),
        toys.method(sampler=("grammar", {"definition": "a+Z"})),
        toys.PROMPT,
    )
    path: GrammarPath = run.sampler_state
    assert path.recogniser.mask(path.with_token(0)).sum() == 1, "a again, and Z, which no token has"
    stuck = Recogniser("aZ", "regex", ALPHABET).root
    with pytest.raises(
        EngineFault, match=r"^No token of this model goes on as the grammar demands behind 1 tokens"
    ):
        stuck.recogniser.mask(stuck.with_token(0))
    assert stuck.recogniser.mask(stuck).sum() == 1, "the matcher is as good as new"


def test_an_end_token_that_a_smaller_second_model_does_not_know_ends_no_text_of_the_grammar() -> None:
    """The run keeps the ids that both models know. Of two end tokens one is kept; of one none is, and a sentence reports it."""
    target = toys.add_tokenizer(toys.pair()[0])
    small = toys.add_tokenizer(toys.model(toys.decoder(toys.toy_spec(vocab=10), dtype=torch.float64)))
    made = toys.method(
        sampler=("grammar", dict(definition="[a-d]{3}")), drafter=("draft_model", dict(max_draft_tokens=2))
    )
    end = toys.finish_session(
        Session(target, made, [1, 2, 3], models={"draft": small}, max_new_tokens=8, stop_tokens=[9, 12])
    ).end
    assert len(end.tokens) == 4 and end.tokens[-1] == 9 and max(end.tokens[:3]) < 4
    with pytest.raises(ParamError, match="ends its text with a stop token, and this run has none"):
        Session(target, made, [1, 2, 3], models={"draft": small}, max_new_tokens=8)
