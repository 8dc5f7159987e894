"""The words of the generated texts: names, animals, places, things; and the little grammar that joins them."""

# ruff: noqa: SIM905 (a row of words is easier to read than a list of quoted ones)
from __future__ import annotations

import re

WOMEN = (
    "Ada Agnes Alma Amina Anna Astrid Bella Bertha Carla Clara Cora Daisy Dora Edith Ella Elsa Emma Esther Eva Fatima "
    "Flora Freya Gerda Grace Greta Hanna Hazel Heidi Helen Ida Ines Ingrid Iris Ivy Jana Jill Julia Kate Kira Lena Lily "
    "Linda Lotte Lucy Luna Mabel Mara Maria Martha Maya Mila Mina Mira Nadia Nell Nina Nora Olga Olive Paula Pearl Petra "
    "Pia Rosa Rose Ruby Ruth Sara Selma Sofia Stella Susan Tara Tess Thea Tilda Tina Ursula Vera Violet Wanda Wilma Yara "
    "Zelda Zoe"
).split()
MEN = (
    "Aaron Adam Albert Alex Anton Arthur Axel Ben Bert Boris Bruno Carl Caspar Cedric Conrad Daniel David Dylan Edgar "
    "Emil Eric Felix Finn Frank Fred Fritz Gabriel George Gregor Gustav Hans Harry Hector Henry Hugo Ian Igor Ivan Jack "
    "Jakob Jasper Joel John Jonas Joseph Julian Karl Kurt Lars Leo Leon Liam Lionel Louis Lukas Malik Marco Mark Martin "
    "Max Milo Mischa Nico Nils Noah Oliver Omar Oscar Otto Owen Paul Pedro Peter Philip Quentin Ralph Ravi Robin Rolf "
    "Rufus Sam Samuel Simon Stefan Sven Theo Thomas Tim Tobias Tom Uri Victor Walter Will Yusuf"
).split()
NAMES = [*WOMEN, *MEN]
GIRLS = frozenset(WOMEN)
ANIMALS = (
    "cat dog fox owl bear mouse rabbit duck horse frog goat hedgehog sparrow turtle badger squirrel otter donkey crow "
    "goose hen sheep lamb pony mole beaver swan robin heron snail bee pig cow hare toad deer"
).split()
TRAITS = (
    "small brave quiet curious clever gentle proud careful cheerful patient shy lively kind stubborn thoughtful honest "
    "merry busy dreamy tidy polite friendly"
).split()
PLACES = (
    "village forest garden town valley harbour farm island mill castle library market bridge meadow lighthouse school "
    "orchard station bakery workshop tower lake hill cave museum inn barn beach"
).split()
THINGS = (
    "key lamp book map coin bell basket kite drum boat letter clock scarf box ring flute hat ladder mirror umbrella "
    "bottle kettle rope saw blanket pencil button bowl spoon cup ball whistle violin compass needle candle brush hammer "
    "bucket bag jar stool wheel trumpet apron"
).split()
COLOURS = "red blue green yellow white black brown grey golden silver orange purple pink turquoise".split()
FOODS = (
    "bread soup apples cheese honey cake pears rice plums nuts pancakes cherries beans carrots dumplings noodles "
    "porridge jam berries butter eggs grapes"
).split()
FEELINGS = (
    "happy sad tired afraid surprised angry proud glad worried calm lonely hopeful excited curious".split()
)
JOBS = (
    "teacher baker farmer sailor painter doctor tailor gardener miller librarian carpenter potter fisher shepherd smith "
    "postman weaver clockmaker beekeeper cook musician shoemaker"
).split()
WEATHER = [
    "the sun was shining",
    "it was raining",
    "the wind was strong",
    "snow was falling",
    "the sky was grey",
    "fog lay over the fields",
]
TIMES = ["in the morning", "at noon", "in the evening", "at night", "after lunch", "before breakfast"]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November December").split()
HIDING = [
    "under the bed",
    "behind the door",
    "in the old tree",
    "near the river",
    "on the roof",
    "inside the barn",
    "at the bottom of the well",
    "between two stones",
    "under the stairs",
    "behind the stove",
    "in the hay",
    "on the highest shelf",
    "under the bridge",
    "in the tall grass",
]
CITIES = (
    "Berlin Paris London Madrid Rome Oslo Vienna Lisbon Athens Dublin Prague Warsaw Cairo Tokyo Lima Nairobi Toronto "
    "Sydney Seoul Helsinki"
).split()
CAPITALS = {
    "Germany": "Berlin",
    "France": "Paris",
    "Spain": "Madrid",
    "Italy": "Rome",
    "Norway": "Oslo",
    "Austria": "Vienna",
    "Portugal": "Lisbon",
    "Greece": "Athens",
    "Ireland": "Dublin",
    "Poland": "Warsaw",
    "England": "London",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
    "Cuba": "Havana",
    "Hungary": "Budapest",
}
OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "fast": "slow",
    "old": "new",
    "light": "dark",
    "high": "low",
    "wet": "dry",
    "early": "late",
    "full": "empty",
    "open": "closed",
    "happy": "sad",
    "loud": "quiet",
    "near": "far",
    "long": "short",
    "strong": "weak",
    "rich": "poor",
    "hard": "soft",
    "first": "last",
    "clean": "dirty",
}
PLURALS = {
    "mouse": "mice",
    "goose": "geese",
    "sheep": "sheep",
    "deer": "deer",
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "man": "men",
    "woman": "women",
    "leaf": "leaves",
    "knife": "knives",
    "loaf": "loaves",
    "half": "halves",
    "wolf": "wolves",
    "shelf": "shelves",
    "person": "people",
    "ox": "oxen",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "hero": "heroes",
    "fish": "fish",
    "scarf": "scarves",
}
GROUPS = {
    "animal": ANIMALS,
    "colour": COLOURS,
    "food": FOODS,
    "job": JOBS,
    "place": PLACES,
    "thing": THINGS,
    "name": NAMES,
    "city": CITIES,
    "day": DAYS,
    "month": MONTHS,
}
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()

VOWEL = re.compile(r"(?!one\b|once\b|uni|use|usu|eu|ur[au])[aeiou]|hour|honest|heir", re.I)


def with_article(word: str) -> str:
    """The word with 'a' or 'an' before it, by its sound: an apple, a unicorn, an hour."""
    return ("an " if VOWEL.match(word) else "a ") + word


def capitalize(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def join_words(words: list[str] | tuple[str, ...], last: str = "and") -> str:
    """'a, b and c'."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" {last} " + words[-1]


def pluralize(word: str) -> str:
    """The plural of an English noun: box, boxes; city, cities; mouse, mice."""
    if word in PLURALS:
        return PLURALS[word]
    if re.search(r"(s|x|z|ch|sh)$", word):
        return word + "es"
    return re.sub(r"(?<=[^aeiou])y$", "ie", word) + "s"


def count_noun(count: int, word: str) -> str:
    """'one box', 'seven boxes', '15 boxes'."""
    return (
        f"{NUMBERS[count] if 0 <= count < len(NUMBERS) else count} {word if count == 1 else pluralize(word)}"
    )
