"""Sentences between English and Lomeri, a small language made for this task; assets/bench/README.md has its grammar.

One meaning has one sentence in either language, so there is one right answer in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from typing import Any

from ..words import NAMES, pluralize
from .task import Task, pick

KIND = "translation"

# English, then Lomeri; of verbs three English forms: see, sees, saw
NOUNS = (
    "man vipa, woman sedo, child goto, teacher niki, farmer mite, doctor suba, baker lete, sailor pefo, king peki, "
    "queen sebe, friend liro, cat bofo, dog vifi, bird pare, horse robe, fox gise, mouse rati, goat mafa, bear moda, "
    "frog bari, house telo, garden tomo, river gake, bridge kote, tree zime, hill todu, island ripo, village bupe, "
    "market seri, school lopu, boat suge, book nofe, letter tuda, key kine, lamp mude, bell suni, box loge, bag dilo, "
    "hat satu, cup vose, apple vapi, egg buvi, cake pege, stone vala, flower zole, star supo, song sivi, ball rodo, "
    "clock sire, ring vule, door faro, bed rego, table bata, chair fosa, window zave, road doze, wheel zuto, spoon pome, "
    "knife relu, tower runa, forest sefa, cloud pebu, coat fuko, shoe lobo, picture kera, pear sobu, field dira, "
    "mountain lume, wall kase, drum nage, kite dese"
)
ADJECTIVES = (
    "small dupu, big rane, red muze, blue tema, green tere, white sapa, black lafe, old befe, new gudi, good reta, "
    "bad rabo, happy soga, sad bove, brave leno, quiet sino, clever sope, slow rasu, fast nega, long mesi, warm loma, "
    "cold zuse, young bufa, strong lamo, beautiful repe, round numu, heavy libu"
)
VERBS = (
    "see sees saw topa, find finds found vibe, love loves loved rige, take takes took favi, carry carries carried monu, "
    "make makes made mebo, hear hears heard saze, buy buys bought mepa, sell sells sold nize, hide hides hid pide, "
    "want wants wanted viru, draw draws drew poso, paint paints painted mura, call calls called muki, "
    "follow follows followed nota, help helps helped disu, know knows knew kure, hold holds held soli, "
    "lose loses lost defu, bring brings brought dona, keep keeps kept dugo, need needs needed deni, "
    "watch watches watched toki, wash washes washed guve, remember remembers remembered meke, forget forgets forgot laki, "
    "choose chooses chose gulo, catch catches caught raga, like likes liked taku"
)
PRONOUNS = "I rola, we foru, you rute, they sila"
NUMBERS = "two lodi, three bepi, four piri, five mano, six vero, seven safo, eight dovi, nine lipi"
PLACES = "in geti, under vate, near neto, behind budo, on molo, with tipe, without sepu, above zipu"
TIMES = "today fode, yesterday bemo, tomorrow gara, now pama, often nevi, always pibo"
AND = "e"
NOT = "ne"
WHETHER = "ka"
MANY = "-ri"
TENSES = {"present": "", "past": "-ta", "future": "-so"}
TENSE_OF = {
    "yesterday": "past",
    "tomorrow": "future",
    "now": "present",
}  # the other times go with every tense
ASK = {
    "to": (
        "Translate into Lomeri: {}",
        "Say this in Lomeri: {}",
        "How do you say this in Lomeri? {}",
        "English to Lomeri: {}",
    ),
    "from": (
        "Translate into English: {}",
        "Say this in English: {}",
        "What does this mean in English? {}",
        "Lomeri to English: {}",
    ),
}
AFTER = {"to": "Translate into Lomeri.", "from": "Translate into English."}


def dictionary(table: str) -> dict[str, str]:
    """English base form -> Lomeri."""
    return {entry.split()[0]: entry.split()[-1] for entry in table.split(", ")}


NOUN, ADJECTIVE, VERB, PRONOUN, NUMBER, PLACE, TIME = map(
    dictionary, (NOUNS, ADJECTIVES, VERBS, PRONOUNS, NUMBERS, PLACES, TIMES)
)
LIVING = list(NOUN)[: list(NOUN).index("house")]  # who can do something
FORMS = {entry.split()[0]: entry.split()[:3] for entry in VERBS.split(", ")}  # base -> base, with -s, past


def named_fields(name: str, thing: Any) -> str:
    """The `repr` of a dataclass of that name. It decides the split (`pick`): another text would be another corpus."""
    return f"{name}({', '.join(f'{one.name}={getattr(thing, one.name)!r}' for one in fields(thing))})"


@dataclass(frozen=True)
class NounGroup:
    """A noun with what belongs to it; or a pronoun or a name, without anything else."""

    noun: str
    many: bool = False
    adjective: str = ""
    number: str = ""  # with a number, `many` is true

    def __repr__(self) -> str:
        return named_fields("Group", self)


@dataclass(frozen=True)
class SentenceMeaning:
    """What a sentence says: who does what to whom, where and when."""

    who: tuple[NounGroup, ...]  # one or two, joined by "and"
    verb: str
    whom: NounGroup
    tense: str
    denied: bool = False
    asked: bool = False
    place: tuple[str, NounGroup] | None = None  # preposition and what it goes with
    time: str = ""

    def __repr__(self) -> str:
        return named_fields("Sentence", self)


def draw_group(r: Random, noun: str = "", plain: bool = False) -> NounGroup:
    """A noun, sometimes in plural, counted or described; `plain` ones are only a noun."""
    noun = noun or r.choice(list(NOUN))
    if plain:
        return NounGroup(noun, r.random() < 0.2)
    number = r.choice(list(NUMBER)) if r.random() < 0.2 else ""
    return NounGroup(
        noun, bool(number) or r.random() < 0.25, r.choice(list(ADJECTIVE)) if r.random() < 0.4 else "", number
    )


def draw_sentence(r: Random) -> SentenceMeaning:
    """A sentence that has every noun once."""
    first, second = r.sample(LIVING, 2)
    third, fourth = r.sample([noun for noun in NOUN if noun not in (first, second)], 2)
    who = [draw_group(r, first)]
    if r.random() < 0.4:
        who = [NounGroup(r.choice([r.choice(list(PRONOUN)), r.choice(NAMES)]))]
    elif r.random() < 0.15:
        who = [NounGroup(first), NounGroup(second)]
    time = r.choice(list(TIME)) if r.random() < 0.35 else ""
    place = (
        (r.choice(list(PLACE)), draw_group(r, third, plain=r.random() < 0.7)) if r.random() < 0.35 else None
    )
    return SentenceMeaning(
        tuple(who),
        r.choice(list(VERB)),
        draw_group(r, fourth),
        TENSE_OF.get(time) or r.choice(list(TENSES)),
        r.random() < 0.15,
        r.random() < 0.2,
        place,
        time,
    )


def to_english(said: SentenceMeaning) -> str:
    """The sentence in English."""

    def of(g: NounGroup) -> str:
        if g.noun not in NOUN:
            return g.noun
        noun = pluralize(g.noun) if g.many else g.noun
        return " ".join(x for x in (g.number or "the", g.adjective, noun) if x)

    who = " and ".join(map(of, said.who))
    single = len(said.who) == 1 and not said.who[0].many and said.who[0].noun not in PRONOUN
    base, third, past = FORMS[said.verb]
    helper = {"present": "does" if single else "do", "past": "did", "future": "will"}[said.tense]
    if said.asked:
        words = [helper, who, "not" if said.denied else "", base]
    elif said.denied:
        words = [who, helper, "not", base]
    else:
        words = [
            who,
            {"present": third if single else base, "past": past, "future": f"will {base}"}[said.tense],
        ]
    words += [of(said.whom), f"{said.place[0]} {of(said.place[1])}" if said.place else "", said.time]
    text = " ".join(w for w in words if w)
    return text[0].upper() + text[1:] + ("?" if said.asked else ".")


def to_lomeri(said: SentenceMeaning) -> str:
    """The sentence in Lomeri: when, who, where, whom, verb, not, whether."""

    def of(g: NounGroup) -> str:
        noun = NOUN.get(g.noun) or PRONOUN.get(g.noun) or g.noun
        return " ".join(
            x for x in (noun + MANY * g.many, ADJECTIVE.get(g.adjective), NUMBER.get(g.number)) if x
        )

    words = [
        TIME.get(said.time),
        f" {AND} ".join(map(of, said.who)),
        f"{of(said.place[1])} {PLACE[said.place[0]]}" if said.place else "",
        of(said.whom),
        VERB[said.verb] + TENSES[said.tense],
        NOT if said.denied else "",
        WHETHER if said.asked else "",
    ]
    return " ".join(w for w in words if w) + "."


def make(r: Random, split: str) -> Task:
    """A sentence in one language, and in the other."""
    said = pick(split, lambda: draw_sentence(r))
    way = r.choice(["to", "from"])
    texts = [to_english(said), to_lomeri(said)]
    given, answer = texts if way == "to" else texts[::-1]
    turn = r.choice(ASK[way]).format(given) if r.random() < 0.75 else f"{given}\n{AFTER[way]}"
    return Task(
        KIND, (turn,), (answer,), "edit_distance", {"way": way, "words": len(answer.split())}, repr(said)
    )
