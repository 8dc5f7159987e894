"""Small texts made by rule: stories, talks, chats, JSON, sums, lists and things to recall.

A model of ten million parameters learns simple, regular text well, and regular text shows decoding methods at work:
a draft model guesses it, an evicted key is missed in it. Every document is drawn from the `random.Random` that is
passed in; the same seed gives the same text.
"""

# ruff: noqa: SIM905 (a row of words is easier to read than a list of quoted ones)
from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

NAMES = (
    "Ada Ben Clara David Ella Finn Grace Hugo Iris Jonas Kira Leo "
    "Mara Nils Olga Paul Rosa Sam Tilda Uri Vera Will Yara Zoe"
).split()
GIRLS = frozenset("Ada Clara Ella Grace Iris Kira Mara Olga Rosa Tilda Vera Yara Zoe".split())
ANIMALS = "cat dog fox owl bear mouse rabbit duck horse frog goat hedgehog sparrow turtle".split()
TRAITS = "small brave quiet curious clever gentle proud careful cheerful patient".split()
PLACES = "village forest garden town valley harbour farm island mill castle library market".split()
THINGS = "key lamp book map coin bell basket kite drum boat letter clock scarf box ring flute".split()
COLOURS = "red blue green yellow white black brown grey golden silver".split()
FOODS = "bread soup apples cheese honey cake pears rice plums nuts".split()
FEELINGS = "happy sad tired afraid surprised angry proud glad worried calm".split()
WEATHER = ["the sun was shining", "it was raining", "the wind was strong", "snow was falling", "the sky was grey",
           "fog lay over the fields"]
TIMES = ["in the morning", "at noon", "in the evening", "at night", "after lunch", "before breakfast"]
HIDING = ["under the bed", "behind the door", "in the old tree", "near the river", "on the roof", "inside the barn",
          "at the bottom of the well", "between two stones"]
JOBS = "teacher baker farmer sailor painter doctor tailor gardener miller librarian".split()
CITIES = "Berlin Paris London Madrid Rome Oslo Vienna Lisbon Athens Dublin Prague Warsaw".split()
CAPITALS = {"Germany": "Berlin", "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Norway": "Oslo",
            "Austria": "Vienna", "Portugal": "Lisbon", "Greece": "Athens", "Ireland": "Dublin", "Poland": "Warsaw",
            "England": "London", "Sweden": "Stockholm", "Finland": "Helsinki", "Japan": "Tokyo", "Egypt": "Cairo"}
OPPOSITES = {"hot": "cold", "big": "small", "fast": "slow", "old": "new", "light": "dark", "high": "low", "wet": "dry",
             "early": "late", "full": "empty", "open": "closed", "happy": "sad", "loud": "quiet"}
PLURALS = {"mouse": "mice", "cat": "cats", "fox": "foxes", "child": "children", "leaf": "leaves", "city": "cities",
           "box": "boxes", "foot": "feet", "story": "stories", "book": "books", "knife": "knives", "dog": "dogs"}
GROUPS = {"animal": ANIMALS, "colour": COLOURS, "food": FOODS, "job": JOBS, "place": PLACES, "thing": THINGS}


def article(word: str) -> str:
    """The word with 'a' or 'an' before it."""
    return ("an " if word[0] in "aeiou" else "a ") + word


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[0].upper() + text[1:]


def joined(words: list[str]) -> str:
    """'a, b and c'."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def hero(r: Random) -> tuple[str, str, str, str]:
    """A name, what it is, and its pronouns (she, her)."""
    name = r.choice(NAMES)
    kinds = ("girl" if name in GIRLS else "boy", r.choice(ANIMALS))
    kind = r.choice([article(r.choice(TRAITS)) + " " + k for k in kinds])
    return (name, kind, "she", "her") if name in GIRLS else (name, kind, "he", "his")


def other_name(r: Random, *taken: str) -> str:
    """A name that is not taken yet."""
    return r.choice([name for name in NAMES if name not in taken])


def story(r: Random) -> str:
    """Someone loses, finds, makes or shares something; cause, search and end fit together."""
    name, kind, she, hers = hero(r)
    friend = other_name(r, name)
    thing, colour, place, food = r.choice(THINGS), r.choice(COLOURS), r.choice(PLACES), r.choice(FOODS)
    spots = r.sample(HIDING, 3)
    start = r.choice([
        f"Once upon a time there was {kind} named {name}.",
        f"{name} was {kind} who lived in a {place}.",
        f"In a {place} far away lived {kind} called {name}.",
    ])
    setting = r.choice([
        f"{capital(she)} loved {hers} {colour} {thing} more than anything else.",
        f"Every day {she} played with {hers} {colour} {thing}.",
        f"{capital(hers)} best friend was {friend}, and together they shared {article(colour)} {thing}.",
    ])
    day = f"One day {r.choice(TIMES)}, when {r.choice(WEATHER)},"
    plot = r.choice(["lost", "found", "hungry", "made", "promise"])
    if plot == "lost":
        middle = [
            f"{day} the {thing} was gone.",
            f"{name} was very {r.choice(['sad', 'worried', 'afraid'])}. \"Where is my {thing}?\" {she} asked.",
            f"{capital(she)} looked {spots[0]}, but the {thing} was not there.",
            f"{capital(she)} looked {spots[1]}, but the {thing} was not there.",
            f"Then {friend} came to help. \"Let us look {spots[2]},\" said {friend}.",
            f"And there it was! The {colour} {thing} lay {spots[2]}.",
            f"\"Thank you, {friend}!\" said {name}. \"You are a good friend.\"",
        ]
    elif plot == "found":
        middle = [
            f"{day} {name} found a second {thing} {spots[0]}.",
            f"\"This is not mine,\" {she} thought. \"Someone must be looking for it.\"",
            f"So {she} walked through the {place} and asked everyone. \"Is this your {thing}?\"",
            f"\"No,\" said the {r.choice(JOBS)}. \"But I saw {friend} looking for a {thing} {spots[1]}.\"",
            f"{name} went to {friend} and gave the {thing} back.",
            f"{friend} was so {r.choice(['happy', 'glad'])} that they ate {food} together.",
        ]
    elif plot == "hungry":
        middle = [
            f"{day} {name} was very hungry, but there was nothing to eat at home.",
            f"{capital(she)} met {friend}, who had a basket full of {food}.",
            f"\"May I have some of your {food}?\" asked {name}.",
            f"\"Yes, if you let me play with your {thing},\" said {friend}.",
            f"So {name} gave {friend} the {colour} {thing}, and {friend} gave {name} the {food}.",
            "They sat down, ate and played until the sun went down.",
        ]
    elif plot == "made":
        middle = [
            f"{day} the {thing} broke in two.",
            f"{name} went to the {r.choice(JOBS)} and asked for help.",
            "\"First we need wood, then we need paint, and then we need time,\" was the answer.",
            f"{name} brought the wood. {friend} brought the paint. They both had time.",
            f"They worked {r.choice(['all day', 'for three days', 'until the evening'])}.",
            f"In the end the {thing} was as good as new, and it was {colour} again.",
        ]
    else:
        middle = [
            f"{day} {friend} asked, \"{name}, will you help me carry the {food} to the {place}?\"",
            f"\"I promise,\" said {name}. But then {she} saw something {spots[0]} and forgot the promise.",
            f"{friend} waited and waited, and at last {friend} went alone.",
            f"When {name} remembered, {she} was very sorry. {capital(she)} ran all the way to the {place}.",
            f"\"I am sorry, {friend},\" said {name}. \"I made a promise and I forgot it.\"",
            f"{friend} was not angry. \"You can help me now,\" said {friend}, and {name} did.",
        ]
    end = r.choice([
        f"From that day on {name} and {friend} were friends for ever.",
        f"{name} was {r.choice(['happy', 'glad', 'proud'])}, and that night {she} slept well.",
        f"And {name} never forgot that day.",
        f"{name} learned that it is good to {r.choice(['help', 'share', 'ask a friend', 'be patient', 'try again'])}.",
    ])
    title = [f"The {colour} {thing}", ""] if r.random() < 0.3 else []
    sentences = [start, setting, *middle, end]
    cuts = sorted(r.sample(range(2, len(sentences) - 1), 2))
    paragraphs = [" ".join(sentences[a:b]) for a, b in zip([0, *cuts], [*cuts, len(sentences)], strict=True)]
    return "\n".join([*title, "\n\n".join(paragraphs)]) + "\n"


def talk(r: Random) -> str:
    """Two people speak in turn about a thing, a way or a plan."""
    a, b = r.sample(NAMES, 2)
    thing, colour, place, spot = r.choice(THINGS), r.choice(COLOURS), r.choice(PLACES), r.choice(HIDING)
    time, food, price = r.choice(TIMES), r.choice(FOODS), r.randint(2, 20)
    plan = r.choice([
        [f"Have you seen my {colour} {thing}?", f"Yes, I saw it {spot}.", f"{capital(spot)}? What was it doing there?",
         "I do not know. Maybe the cat took it.", f"I will go and look {spot}. Thank you!"],
        [f"How much is the {thing}?", f"The {colour} {thing} costs {price} coins.", f"I have only {price - 1} coins.",
         f"Then I will give it to you for {price - 1} coins.", "That is very kind of you."],
        [f"Shall we go to the {place} {time}?", "What shall we do there?", f"We can eat {food} and look at the boats.",
         f"Good. I will bring the {food}.", f"And I will bring my {thing}."],
        [f"How do I get to the {place}?", "Go straight on, then turn left at the bridge.", "And then?",
         f"Then you will see the {place} on the right.", "Straight on, left, and on the right. Thank you!"],
        [f"Why are you so {r.choice(FEELINGS)} today?", f"Because I found my {thing}.", "Where was it?",
         f"It was {spot}.", f"I am glad that you have your {thing} again."],
    ])
    plan = plan[: r.randint(3, len(plan))]
    if r.random() < 0.5:
        return "".join(f"{(a, b)[i % 2]}: {line}\n" for i, line in enumerate(plan))
    said = ""
    for i, line in enumerate(plan):
        mark, verb = ("?", "asked") if line[-1] == "?" else ("!" if line[-1] == "!" else ",", "said")
        said += f"\"{line[:-1]}{mark}\" {verb} {(a, b)[i % 2]}.\n"
    return said


def sums(r: Random) -> str:
    """Lines of arithmetic, one kind to a document."""
    kind, top = r.choice("+-*+-*/"), r.choice([10, 10, 20, 100])
    lines = []
    for _ in range(r.randint(6, 24)):
        a, b = r.randint(0, top), r.randint(1, min(top, 12) if kind in "*/" else top)
        a, b = (max(a, b), min(a, b)) if kind == "-" else (a * b, b) if kind == "/" else (a, b)
        value = a + b if kind == "+" else a - b if kind == "-" else a * b if kind == "*" else a // b
        lines.append(f"{a} {kind} {b} = {value}")
    return "\n".join(lines) + "\n"


def counting(r: Random) -> str:
    """A sequence that goes on by a fixed rule."""
    start, by, n = r.randint(0, 30), r.choice([1, 1, 2, 3, 5, 10]), r.randint(10, 30)
    numbers = [start + by * i for i in range(n)]
    if r.random() < 0.3:
        numbers.reverse()
    shape = r.choice([", ".join, " ".join, "\n".join])
    return shape(map(str, numbers)) + "\n"


def table(r: Random) -> str:
    """A multiplication table."""
    k = r.randint(1, 12)
    return "".join(f"{i} x {k} = {i * k}\n" for i in range(1, 11))


def person(r: Random) -> dict:
    """A flat record with plausible fields."""
    name = r.choice(NAMES)
    record = {
        "id": r.randint(1, 999), "name": name, "age": r.randint(6, 80), "city": r.choice(CITIES), "job": r.choice(JOBS),
        "email": f"{name.lower()}@example.com", "active": r.random() < 0.7,
        "tags": r.sample(COLOURS, r.randint(0, 3)),
    }
    keep = sorted(r.sample(range(1, len(record)), r.randint(3, len(record) - 1)))
    return {key: value for i, (key, value) in enumerate(record.items()) if i == 0 or i in keep}


def order(r: Random) -> dict:
    """An order whose total is the sum of its lines."""
    items = [{"product": r.choice(THINGS), "count": r.randint(1, 5), "price": r.randint(1, 20)}
             for _ in range(r.randint(1, 4))]
    return {"order": r.randint(1000, 9999), "customer": r.choice(NAMES), "items": items,
            "total": sum(i["count"] * i["price"] for i in items), "paid": r.random() < 0.5}


def settings(r: Random) -> dict:
    """A configuration file."""
    return {"name": f"{r.choice(COLOURS)}-{r.choice(THINGS)}",
            "version": f"{r.randint(0, 3)}.{r.randint(0, 9)}.{r.randint(0, 9)}",
            "debug": r.random() < 0.3, "server": {"host": "localhost", "port": r.choice([80, 443, 5000, 8000, 8080])},
            "logging": {"level": r.choice(["debug", "info", "warning", "error"]), "file": None},
            "features": r.sample(["search", "login", "export", "import", "cache", "theme"], r.randint(1, 4))}


def json_text(r: Random) -> str:
    """A JSON document, indented or on one line, or JSON lines."""
    make = r.choice([person, person, order, settings])
    indent = r.choice([None, 2, 2, 4])
    if r.random() < 0.3:
        return "".join(json.dumps(make(r)) + "\n" for _ in range(r.randint(2, 8)))
    return json.dumps([make(r) for _ in range(r.randint(2, 4))] if r.random() < 0.4 else make(r), indent=indent) + "\n"


def listing(r: Random) -> str:
    """A list of words or of steps: bullets or numbers, sometimes sorted."""
    group = r.choice(list(GROUPS))
    words = r.sample(GROUPS[group], r.randint(4, 8))
    head = f"A list of {group}s:"
    if r.random() < 0.4:
        words, head = sorted(words), f"A sorted list of {group}s:"
    mark = r.choice([lambda i: "- ", lambda i: "* ", lambda i: f"{i}. "])
    return head + "\n\n" + "".join(f"{mark(i)}{word}\n" for i, word in enumerate(words, 1))


def recall(r: Random) -> str:
    """Facts stated once and asked for later: what a dropped key would have answered."""
    names = r.sample(NAMES, r.randint(4, 10))
    kind = r.choice(["number", "colour", "thing", "city"])
    value = {"number": lambda: str(r.randint(100, 9999)), "colour": lambda: r.choice(COLOURS),
             "thing": lambda: r.choice(THINGS), "city": lambda: r.choice(CITIES)}[kind]
    facts = {name: value() for name in names}
    lines = [f"The {kind} of {name} is {fact}." for name, fact in facts.items()]
    asked = r.sample(names, r.randint(2, len(names)))
    filler = [story(r).strip(), ""] if r.random() < 0.2 else []
    questions = [f"What is the {kind} of {n}? The {kind} of {n} is {facts[n]}." for n in asked]
    return "\n".join([*lines, "", *filler, *questions]) + "\n"


def copies(r: Random) -> str:
    """Nonsense words, said twice: practice in looking back."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = ["".join(r.choices(syllables, k=r.randint(1, 3))) for _ in range(r.randint(6, 24))]
    line = " ".join(words)
    return f"{line}\n" * r.randint(2, 4)


def question(r: Random) -> tuple[str, str]:
    """One question and its true answer."""
    a, b = r.randint(1, 50), r.randint(1, 50)
    country, word, animal = r.choice(list(CAPITALS)), r.choice(list(OPPOSITES)), r.choice(list(PLURALS))
    group = r.choice(list(GROUPS))
    some = r.sample(GROUPS[group], 3)
    name, thing, n = r.choice(NAMES), r.choice(THINGS), r.randint(2, 5)
    spelled = r.choice(NAMES + THINGS)
    return r.choice([
        lambda: (f"What is {a} + {b}?", f"{a} + {b} = {a + b}."),
        lambda: (f"What is {a + b} - {b}?", f"{a + b} - {b} = {a}."),
        lambda: (f"What is the capital of {country}?", f"The capital of {country} is {CAPITALS[country]}."),
        lambda: (f"What is the opposite of {word}?", f"The opposite of {word} is {OPPOSITES[word]}."),
        lambda: (f"What is the plural of {animal}?", f"The plural of {animal} is {PLURALS[animal]}."),
        lambda: (f"Name three {group}s.", f"Three {group}s are {joined(some)}."),
        lambda: (f"Write a list of three {group}s.", "".join(f"- {w}\n" for w in some).strip()),
        lambda: (f"Sort these words: {', '.join(some)}.", f"{', '.join(sorted(some))}"),
        lambda: (f"Spell the word {spelled}.", f"{'-'.join(spelled.upper())}"),
        lambda: (f"Count to {n * 2}.", f"{', '.join(str(i) for i in range(1, n * 2 + 1))}"),
        lambda: (f"Write a JSON object for {name}, a {JOBS[a % len(JOBS)]} who is {a + 10} years old.",
                 json.dumps({"name": name, "job": JOBS[a % len(JOBS)], "age": a + 10})),
        lambda: (f"Repeat: {' '.join(some)} {thing}.", f"{' '.join(some)} {thing}."),
    ])()


CODE = '''
# adds two numbers
def add(a, b):
    """Return the sum of a and b."""
    return a + b

# multiplies two numbers
def multiply(a, b):
    """Return the product of a and b."""
    return a * b

# returns the larger of two numbers
def larger(a, b):
    """Return the larger of a and b."""
    if a > b:
        return a
    return b

# computes the factorial of a number
def factorial(n):
    """Return n! for n >= 0."""
    result = 1
    for i in range(2, n + 1):
        result *= i
    return result

# computes the n-th Fibonacci number
def fibonacci(n):
    """Return the n-th Fibonacci number."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

# tests whether a number is even
def is_even(n):
    """Return True if n is even."""
    return n % 2 == 0

# tests whether a number is prime
def is_prime(n):
    """Return True if n is prime."""
    if n < 2:
        return False
    for i in range(2, int(n ** 0.5) + 1):
        if n % i == 0:
            return False
    return True

# reverses a string
def reverse(text):
    """Return text in reverse order."""
    return text[::-1]

# counts the words in a text
def count_words(text):
    """Return the number of words in text."""
    return len(text.split())

# sums a list
def total(values):
    """Return the sum of values."""
    result = 0
    for value in values:
        result += value
    return result

# finds the largest value in a list
def largest(values):
    """Return the largest of values."""
    best = values[0]
    for value in values[1:]:
        if value > best:
            best = value
    return best

# removes duplicates from a list
def unique(values):
    """Return values without duplicates, in order."""
    seen = set()
    result = []
    for value in values:
        if value not in seen:
            seen.add(value)
            result.append(value)
    return result

# reads a file
def read_text(path):
    """Return the content of the file at path."""
    with open(path, encoding="utf-8") as f:
        return f.read()
'''
# what it does, and how: ("adds two numbers", "def add(a, b): ...")
CODE_TASKS = [tuple(part.strip().split("\n", 1)) for part in CODE.split("# ")[1:]]


ROLES = ["You are a helpful assistant.", "Answer in one short sentence.", "You are a patient teacher.",
         "You write Python code."]
STORY_WISHES = ["Tell me a story.", "Please tell me a short story.", "Write a story for children."]


def chat(r: Random) -> str:
    """One to four turns in the chat format of the tokenizer."""
    parts = []
    if r.random() < 0.4:
        parts.append(f"<|system|>\n{r.choice(ROLES)}<|end|>\n")
    turns = r.randint(1, 4)
    if r.random() < 0.3:
        parts.append(f"<|user|>\n{r.choice(['Hello!', 'Hi!', 'Good morning!', 'Good evening!'])}<|end|>\n"
                     f"<|assistant|>\nHello! How can I help you?<|end|>\n")
    for _ in range(turns):
        kind = r.random()
        if kind < 0.25:
            what, code = r.choice(CODE_TASKS)
            asks = r.choice([f"Write a Python function that {what}.", f"Can you write a function that {what}?"])
            answer = f"```python\n{code}\n```"
        elif kind < 0.4:
            asks, answer = r.choice(STORY_WISHES), story(r).strip()
        else:
            asks, answer = question(r)
        parts.append(f"<|user|>\n{asks}<|end|>\n<|assistant|>\n{answer}<|end|>\n")
    if r.random() < 0.2:
        parts.append("<|user|>\nThank you!<|end|>\n<|assistant|>\nYou are welcome!<|end|>\n")
    return "".join(parts)


# kind -> (maker, share of the generated bytes)
KINDS: dict[str, tuple[Callable[[Random], str], float]] = {
    "story": (story, 0.34), "chat": (chat, 0.24), "json": (json_text, 0.14), "talk": (talk, 0.08),
    "recall": (recall, 0.07), "list": (listing, 0.04), "sums": (sums, 0.04), "counting": (counting, 0.02),
    "table": (table, 0.001), "copies": (copies, 0.02),
}
