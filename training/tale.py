"""The means of a story: phrases with choices, people, and the state of the small world they walk through.

A phrase is written `[One|That] morning {h} went to {place}.`: one of the parts between `[` and `]` is drawn, `{h}` is a field
of the tale, `a~ ` becomes "a" or "an", `^` puts the next letter in upper case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from random import Random

from .words import ANIMALS, COLOURS, JOBS, MEN, TRAITS, VOWEL, WOMEN, join_words, with_article

Parts = tuple  # of str, ("", field name) and (alternative, alternative, ...), each alternative Parts again
HOURS = (
    "early in the morning",
    "in the morning",
    "at noon",
    "in the afternoon",
    "in the evening",
    "at night",
)
SEASONS = ("spring", "summer", "autumn", "winter")
SKIES = {
    "spring": ("sunny", "sunny", "rainy", "windy", "cloudy"),
    "summer": ("sunny", "sunny", "sunny", "rainy", "cloudy"),
    "autumn": ("sunny", "rainy", "windy", "foggy", "cloudy"),
    "winter": ("sunny", "snowy", "snowy", "foggy", "cloudy"),
}
SKY = {
    "sunny": "[the sun was shining|there was not a cloud in the sky|the sky was [blue|bright and clear]|the sun [shone"
    " on|warmed] the [roofs|fields|stones]]",
    "rainy": "[it was raining|a soft rain was falling|rain [dripped|ran] from the [leaves|roofs]|the [road|path] was wet from"
    " the rain]",
    "windy": "[the wind was strong|a [fresh|wild|strong] wind [blew|was blowing]|the wind [shook|bent] the [trees|bushes]]",
    "cloudy": "[the sky was grey|grey clouds [hung over|covered] the [hills|valley|land]|the sun hid behind the clouds]",
    "foggy": "[fog lay over the [fields|meadows|hills]|the world was white with fog|everything was [hidden in|wrapped in] fog]",
    "snowy": "[snow was falling|the snow lay [deep|thick and white]|large flakes of snow came down]",
}
AFTER = {
    "rainy": "sunny",
    "windy": "cloudy",
    "foggy": "sunny",
    "snowy": "sunny",
    "cloudy": "rainy",
    "sunny": "cloudy",
}
PACKED = {
    "rope": "a rope",
    "lamp": "a [little|small|tin] lamp",
    "map": "an old map",
    "bread": "a loaf of bread",
    "whistle": "a whistle",
    "blanket": "a [warm|woollen|thick] blanket",
    "apples": "[three|four|some] apples",
    "string": "a ball of string",
    "knife": "a pocket knife",
    "umbrella": "an umbrella",
    "honey": "a jar of honey",
    "flute": "a wooden flute",
    "cheese": "a piece of cheese",
}
FEATURES = (
    "with kind eyes",
    "with a slow, deep voice",
    "with [white|grey] hair",
    "with rough hands and a warm smile",
    "who laughed a lot",
    "who [hardly|rarely|never] hurried",
    "who knew everyone",
    "who liked [tea|jokes|songs|riddles]",
    "who wore a~ {colour} [coat|apron|hat|scarf]",
    "who [always hummed|whistled] at work",
    "who forgot names but no face",
    "who had once been a sailor",
    "who [talked|spoke] very fast",
    "who got up before the sun",
)
FURRY = (
    "with [kind|bright|dark] eyes",
    "with a~ [torn|white|crooked] ear",
    "with a slow, deep voice",
    "with grey whiskers",
    "who wore a~ {colour} [hat|scarf|apron]",
    "who laughed a lot",
    "who [hardly|never] hurried",
    "who knew everyone",
    "who liked [tea|jokes|songs|riddles]",
    "who got up before the sun",
)
BEASTS = [
    a
    for a in ANIMALS
    if a not in {"snail", "bee", "cow", "hen", "pig", "horse", "sheep", "lamb", "deer", "swan", "bear"}
]
ACTS = (
    "[smiled|nodded]",
    "[thought|waited] for a moment",
    "took a deep breath",
    "looked [up|around]",
    "[laughed|sighed]",
    "scratched {?.his} head",
    "[shrugged|blinked]",
    "[stood still|sat down|came closer]",
)
HOW = (
    "[quietly|softly|slowly|gently]",
    "in a low voice",
    "with a [smile|little smile|laugh|sigh]",
    "after a [while|moment]",
    "at once",
    "[kindly|cheerfully|politely]",
)


@cache
def parse_phrase(phrase: str) -> Parts:
    """A phrase as parts; its brackets must close."""
    rows: list[list[list]] = [[[]]]
    for piece in re.findall(r"[\[\]|]|\{[^}]*\}|[^\[\]|{]+", phrase):
        if piece == "[":
            rows.append([[]])
        elif piece == "|" and len(rows) > 1:
            rows[-1].append([])
        elif piece == "]":
            done = tuple(tuple(way) for way in rows.pop())
            rows[-1][-1].append(done)
        else:
            rows[-1][-1].append(("", piece[1:-1]) if piece[0] == "{" else piece)
    if len(rows) != 1:
        raise ValueError(f"the brackets of {phrase!r} do not close")
    return tuple(rows[0][0])


def draw_text(parts: Parts, r: Random, fields: dict[str, str]) -> str:
    """One text of a parsed phrase."""
    out = []
    for part in parts:
        if type(part) is str:
            out.append(part)
        elif part[0] == "":
            out.append(fields[part[1]])
        else:
            out.append(draw_text(part[int(r.random() * len(part))], r, fields))
    return "".join(out)


def render_phrase(text: str, r: Random, fields: dict[str, str]) -> str:
    """One text of a phrase, with its articles and capitals in place."""
    return polish_text(draw_text(parse_phrase(text), r, fields))


def polish_text(text: str) -> str:
    """The text with `a~` and `^` carried out."""
    if "~" in text:
        text = re.sub(r"([aA])~ (?=(\w+))", lambda m: m[1] + ("n " if VOWEL.match(m[2]) else " "), text)
    return re.sub(r"\^+([^\w^]*\w)", lambda m: m[1].upper(), text) if "^" in text else text


@dataclass
class Person:
    """Somebody in a story: name, what they are, what they do, and what they are like."""

    name: str
    she: bool
    kind: str
    job: str
    trait: str

    def fields(self, key: str) -> dict[str, str]:
        """What phrases may say of this person: `{h}`, `{h.she}`, `{h.her}`, `{h.his}`, `{h.kind}` ..."""
        she, her, his = ("she", "her", "her") if self.she else ("he", "him", "his")
        return {
            key: self.name,
            f"{key}.she": she,
            f"{key}.her": her,
            f"{key}.his": his,
            f"{key}.self": her + "self",
            f"{key}.kind": self.kind,
            f"{key}.job": self.job,
            f"{key}.trait": self.trait,
            f"{key}.full": f"{self.name} the {self.job}",
        }


@dataclass
class Tale:
    """The text so far and the state it has led to: who walks along, what they carry, the hour and the weather."""

    r: Random
    furry: bool = False
    airy: bool = False
    fields: dict[str, str] = field(default_factory=dict)
    people: dict[str, Person] = field(default_factory=dict)
    party: list[str] = field(default_factory=list)
    bag: list[str] = field(default_factory=list)
    hour: int = 1
    season: str = "summer"
    sky: str = "sunny"
    met: set[str] = field(default_factory=set)  # the troubles that came
    deeds: list[str] = field(default_factory=list)  # what was done about them: "crossed the river"
    asked: list[tuple[str, str]] = field(default_factory=list)  # questions with their answers
    speaker: str = ""  # who said the last sentence, where it was said
    gist: str = ""
    title: str = ""
    blocks: list[list[str]] = field(default_factory=lambda: [[]])

    # --- words -------------------------------------------------------------------------------------------------

    def draw(self, text: str) -> str:
        """One text of a phrase, with this tale's fields; `{colour}` is another colour every time."""
        self.fields |= {"colour": self.r.choice(COLOURS), "season": self.season, "now": HOURS[self.hour]}
        return render_phrase(text, self.r, self.fields)

    def put(self, **phrases: str) -> None:
        """Set fields to phrases drawn now, so that they stay the same from here on."""
        for key, text in phrases.items():
            self.fields[key] = self.draw(text)

    def say(self, *phrases: str) -> None:
        """Add sentences to the paragraph."""
        self.speaker = ""
        self.blocks[-1].extend(self.draw("^" + text) for text in phrases)

    def say_maybe(self, chance: float, *phrases: str) -> None:
        """Add one of some sentences, or none."""
        if self.r.random() < chance:
            self.say(self.r.choice(phrases))

    def rest(self) -> None:
        """Begin a new paragraph."""
        self.speaker = ""
        if self.blocks[-1]:
            self.blocks.append([])

    def line(self, who: str, text: str, bare: bool = False) -> None:
        """Somebody says something; `bare` leaves out by whom, where only one can have spoken."""
        r = self.r
        said = self.draw("^" + text)
        name = self.fields[who]
        if self.airy or self.speaker not in ("", who):
            self.rest()
        self.speaker = who
        way, inner = r.random(), said[:-1] + "," if said[-1] == "." else said
        verb = {"?": "asked", "!": "[cried|called|said]"}.get(said[-1], "said")
        if bare and way < 0.6:
            text = f'"{said}"'
        elif way < 0.5 or (way >= 0.7 and said[-1] == "!"):
            text = f'"{inner}" {verb} {name}.'
        elif way < 0.7:
            text = f'"{inner}" {name} {verb}.'
        elif way < 0.85:
            text = f'"{inner}" {verb} {name} {r.choice(HOW)}.'
        else:
            text = f'{name} {r.choice(ACTS).replace("?", who)}. "{said}"'
        self.blocks[-1].append(self.draw(text))

    def fact(self, question: str, answer: str) -> None:
        """Remember a question with its answer; the answer must occur in the text."""
        self.asked.append((self.draw("^" + question), self.draw(answer)))

    def record_deed(self, deed: str) -> None:
        """Remember what was done about a trouble, for the end."""
        self.deeds.append(self.draw(deed))

    # --- state -------------------------------------------------------------------------------------------------

    def cast(self, key: str, young: bool = False, unlike: str = "") -> Person:
        """Bring in a new person under a key; `unlike` names one from whom pronouns should mostly distinguish them."""
        r = self.r
        she = r.random() < 0.5
        if unlike and r.random() < 0.8:
            she = not self.people[unlike].she
        names = {p.name for p in self.people.values()}
        name = r.choice(WOMEN if she else MEN)
        while name in names or any(name[0] == other[0] for other in names):
            name = r.choice(WOMEN if she else MEN)
        if self.furry:
            kind = r.choice(BEASTS)
            while any(kind in p.kind for p in self.people.values()):
                kind = r.choice(BEASTS)
        elif young:
            kind = "girl" if she else "boy"
        else:
            kind = "woman" if she else "man"
        taken = {p.job for p in self.people.values()}
        job = r.choice([j for j in JOBS if j not in taken])
        person = Person(name, she, kind, job, r.choice(TRAITS))
        self.people[key] = person
        self.fields |= person.fields(key)
        return person

    def call(self, key: str, who: str) -> None:
        """Let phrases speak of somebody under a second key."""
        self.people[key] = self.people[who]
        self.fields |= self.people[who].fields(key)

    def meet(self, key: str) -> None:
        """Say what somebody new is like."""
        feature = self.r.choice(FURRY if self.furry else FEATURES)
        age = self.r.choice(["old", "young", "tall", "round", "thin", "small", "stout"])
        self.say(f"{{{key}}} was {with_article(age)} {{{key}.kind}} {feature}.")

    def join(self, *keys: str) -> None:
        """Let people walk along; `{who}`, `{they}`, `{their}`, `{i}`, `{my}` ... speak of all who do."""
        self.party += keys
        names = [self.fields[k] for k in self.party]
        one = len(names) == 1
        f = self.fields
        h = self.party[0]
        f |= {
            "who": join_words(names),
            "they": f[f"{h}.she"] if one else "they",
            "them": f[f"{h}.her"] if one else "them",
            "their": f[f"{h}.his"] if one else "their",
            "was": "was" if one else "were",
            "i": "I" if one else "we",
            "me": "me" if one else "us",
            "my": "my" if one else "our",
            "am": "am" if one else "are",
            "self": f[f"{h}.self"] if one else "themselves",
        }

    @property
    def is_alone(self) -> bool:
        """Whether the hero walks with nobody."""
        return len(self.party) == 1

    def friend(self) -> str:
        """The key of one who walks along, or of the hero."""
        return self.r.choice(self.party[1:]) if not self.is_alone else self.party[0]

    def pack(self, count: int) -> None:
        """Put things into the bag and name them."""
        self.bag += self.r.sample([thing for thing in PACKED if thing not in self.bag], count)
        self.put(packed=join_words([PACKED[thing] for thing in self.bag]))

    def has(self, thing: str) -> bool:
        """Whether a thing is in the bag."""
        return thing in self.bag

    def lose(self, thing: str) -> None:
        """Take a thing out of the bag."""
        self.bag.remove(thing)

    def pass_time(self, hours: int = 1) -> None:
        """Let time pass, at most until night."""
        self.hour = min(self.hour + hours, len(HOURS) - 1)

    @property
    def weather(self) -> str:
        """A phrase for the weather: 'it was raining'; of the stars, at night."""
        if self.hour == 5 and self.sky in ("sunny", "cloudy"):
            return (
                "[the stars were out|the moon stood over the [hills|roofs|trees]|the night was [clear|still]]"
            )
        return SKY[self.sky]

    def clear(self) -> None:
        """Let the weather change."""
        self.sky = AFTER[self.sky]
