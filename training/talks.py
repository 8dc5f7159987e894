"""Talks: two people look for something, agree on a price, ask the way, make a plan, tell news; what is said stays true."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .tale import Tale
from .words import CITIES, DAYS, FOODS, HIDING, JOBS, NUMBERS, PLACES, THINGS, TRAITS, count_noun, pluralize

Lines = list[tuple[str, str]]  # who, and the phrase of what they say
TOPICS: list[Callable[[Tale], Lines]] = []
HELLO = (
    "[Good morning|Good day|Hello|Hi|Good evening], {you}[!|. How are you?|, how nice to see you!|. It has been a long"
    " time!]"
)
ANSWER = "[Hello|Hi|Good to see you], {me}[!|. I am fine, thank you.|. Very well, thank you.|. I was just thinking of you.]"
BYE = "[Goodbye|See you soon|Until tomorrow|Take care|Have a good day]"


def topic(make: Callable[[Tale], Lines]) -> Callable[[Tale], Lines]:
    """Register a topic."""
    TOPICS.append(make)
    return make


def talk(r: Random) -> str:
    """Two people in turn, as names with colons or as a narrated scene."""
    t = Tale(r, airy=True)
    t.cast("h", young=True)
    t.cast("o")
    lines = r.choice(TOPICS)(t)
    if r.random() < 0.5:
        me, you = ("h", "o") if lines[0][0] == "h" else ("o", "h")
        t.fields |= {"me": t.fields[me], "you": t.fields[you]}
        lines = [(me, HELLO), (you, ANSWER), *lines]
    if r.random() < 0.4:
        first, second = ("o", "h") if lines[-1][0] == "h" else ("h", "o")
        lines += [(first, f"{BYE}, {{{second}}}!"), (second, f"{BYE}, {{{first}}}[!|, and thank you!]")]
    if r.random() < 0.5:
        return "".join(f"{t.fields[who]}: {t.draw('^' + text)}\n" for who, text in lines)
    t.fields |= {"spot": r.choice(PLACES), "when": r.choice(DAYS)}
    t.say(
        "[{h} met {o} [at|near] the {spot}.|{h} and {o} sat in front of the {spot}.|It was {when}, and {h} stood before the"
        " house of {o}.|{h} [saw|found] {o} at the {spot}.|On {when} {h} went to see {o}.|{h} and {o} were on the way to"
        " the {spot}.]"
    )
    for i, (who, text) in enumerate(lines):
        t.line(who, text, bare=i > 1)
    return "\n\n".join(" ".join(block) for block in t.blocks if block) + "\n"


@topic
def missing_thing(t: Tale) -> Lines:
    """Something is missing; the other one knows where it is."""
    a, b = t.r.sample(HIDING, 2)
    t.fields |= {"thing": t.r.choice(THINGS), "a": a, "b": b}
    t.put(
        c="{colour}",
        at="[this morning|yesterday|an hour ago|last night]",
        company="[a spoon|a bag of nuts|some old letters|two marbles|a sleeping cat]",
    )
    return [
        ("h", "[Have you seen|Do you know where I put] my {c} {thing}?"),
        ("o", "[The {c} one|Your {thing}]? I think I saw it {a}, {at}."),
        ("h", "I have already looked {a}. I found only {company}."),
        ("o", "[Then it must be|Then try] {b}. [That is where you always leave things|I am almost sure]."),
        ("h", "[Wait, I will look|Just a moment]. [Yes, here|Here] it is, {b}!"),
        ("o", "[You see|There you are]. [Next time|Tomorrow] put your {thing} where it belongs."),
    ]


@topic
def price(t: Tale) -> Lines:
    """Somebody buys something; the sums are right."""
    count = t.r.randint(2, 9)
    each = t.r.randint(2, 12)
    off = t.r.randint(1, 4)
    back = t.r.randint(2, 9)
    what = t.r.choice(THINGS)
    t.fields |= {
        "what": what,
        "n": count_noun(count, what),
        "each": str(each),
        "all": str(count * each),
        "less": str(count * each - off),
        "paid": str(count * each - off + back),
        "off": str(off),
        "back": str(back),
        "day": t.r.choice(DAYS),
    }
    return [
        ("h", "How much is a~ {colour} {what}?"),
        ("o", "[One {what} is|That is|One costs] {each} coins."),
        ("h", "[Then I would like|I will take|I need] {n}."),
        ("o", "That makes {all} coins."),
        ("h", "[That is a lot|So much]! [Could you|Can you] [make it a little less|give me a better price]?"),
        (
            "o",
            "[For you|Because it is you|Because it is {day}], I will take off {off}. [So it is|That leaves] {less}"
            " coins.",
        ),
        ("h", "[Here are|Here you have] {paid}."),
        ("o", "[And|Then] {back} coins back for you. [Thank you|It was a pleasure]!"),
    ]


@topic
def way(t: Tale) -> Lines:
    """Somebody asks the way and says it back."""
    a, b = t.r.sample(["left", "right"], 2)
    t.fields |= {"to": t.r.choice(PLACES), "a": a, "b": b, "minutes": str(t.r.randint(3, 40))}
    t.put(
        mark="[the bridge|the big oak|the second street|the fountain|the red house]",
        then="[the church|the stone lion|the old well|the white gate|the wall]",
    )
    return [
        ("h", "[Excuse me, how do I get to|Which way is|How can I find] the {to}?"),
        ("o", "[First|Go straight on and] turn {a} at {mark}, [then|and after that] {b} at {then}."),
        ("h", "[So {a} at {mark} and {b} at {then}|First {a}, then {b}]. [Is it far|How long does it take]?"),
        ("o", "[About|Not more than] {minutes} minutes[ on foot|, if you walk fast|]."),
        ("h", "[And how will I know it|What does it look like]?"),
        (
            "o",
            "[It has a~ {colour} door|There is a~ {colour} flag on it|It has a~ {colour} roof and a tall tree in"
            " front]. You cannot miss it.",
        ),
    ]


@topic
def plan(t: Tale) -> Lines:
    """A day, an hour and who brings what."""
    first, day = t.r.sample(DAYS, 2)
    t.fields |= {
        "first": first,
        "day": day,
        "hour": str(t.r.randint(2, 11)),
        "spot2": t.r.choice(PLACES),
        "food": t.r.choice(FOODS),
        "thing": t.r.choice(THINGS),
    }
    t.put(
        no="[I must help my aunt|I have a lesson|we have visitors|I am at the dentist]",
        drink="[tea|lemonade|cocoa|apple juice|water]",
        do="[fly kites|swim|play cards|look for mushrooms|paint|feed the ducks|read to each other|build a raft]",
    )
    return [
        ("h", "[Shall we|Do you want to] meet at the {spot2} on {first}?"),
        ("o", "On {first} {no}. [What about|How about] {day}?"),
        ("h", "[Good, {day} then|{day} is fine]. At {hour} o'clock?"),
        ("o", "[Yes|Fine], at {hour}. What [shall we|are we going to] do there?"),
        ("h", "We could {do}. I will bring {food}."),
        ("o", "Then I will bring {drink}[|, and my {thing}]."),
        (
            "h",
            "[So, to be sure|Let me say it again]: {day}, {hour} o'clock, at the {spot2}. [I bring {food} and you bring"
            " {drink}|There will be {food} from me, {drink} from you].",
        ),
        ("o", "[Exactly|Right|That is it]. [I look forward to it|I will be there]."),
    ]


@topic
def feelings(t: Tale) -> Lines:
    """One is in low spirits and says why; the other knows something."""
    t.fields["thing"] = t.r.choice(THINGS)
    t.put(whose="my [brother|sister|cousin|best friend]")
    t.put(
        why="[{whose} broke my {colour} {thing}|I lost my {colour} {thing}|{whose} is moving away|nobody came to my party|I"
        " forgot my lines in the play|it has rained for a week|I was last in the race]"
    )
    return [
        ("o", "[Why do you look so sad|What is the matter|You are so quiet. What happened]?"),
        ("h", "[I am sad because|It is because] {why}."),
        (
            "o",
            "[Oh|I see|That is hard]. [When I was small, something like that happened to me|Last year it was the same"
            " with me|Once I felt just like that].",
        ),
        ("h", "[And what did you do|What helped]?"),
        (
            "o",
            "[I went for a long walk|I told it to somebody, and that was half of the cure|I slept a night, and in the"
            " morning it was smaller|I baked a cake and ate it all].",
        ),
        (
            "h",
            "[Maybe I will try that|I am telling you now, so that is a start|I feel a little better already].",
        ),
        (
            "o",
            "[Good|I am glad]. [I am always here if you want to talk|Come by tomorrow and tell me more|And now I will"
            " make us some tea].",
        ),
    ]


@topic
def news(t: Tale) -> Lines:
    """News of somebody both know."""
    t.cast("x")
    t.fields |= {"city": t.r.choice(CITIES), "job": t.r.choice(JOBS), "trait": t.r.choice(TRAITS)}
    t.put(
        start="[in spring|next week|on the first of the month|before winter]",
        gift="[a cake|a map|a book|a warm scarf|a song]",
    )
    return [
        ("o", "[Did you hear|Do you know] the news? {x} is going to {city}."),
        ("h", "To {city}? [What for|What will {x.she} do there]?"),
        ("o", "^{x.she} [will work as|wants to become|has found work as] a~ {job}[| there]."),
        (
            "h",
            "{x}, a~ {job}! [I can see it before me|^{x.she} was always so {trait}|That fits]. When [does {x.she}"
            " leave|will that be]?",
        ),
        (
            "o",
            "[They say {start}|^{start}, I think]. [We should give {x.her} something|Let us make {x.her} a present].",
        ),
        ("h", "[How about|What about] {gift}?"),
        (
            "o",
            "[Yes, {gift}|^{gift} is a good idea|That is just right]. [And we will all sign a card|But do not tell"
            " {x.her}].",
        ),
    ]


@topic
def cooking(t: Tale) -> Lines:
    """Two cook; one reads what is needed, one looks what is there."""
    a, b, c = t.r.sample(
        [
            "flour",
            "sugar",
            "butter",
            "milk",
            "salt",
            "honey",
            "apples",
            "nuts",
            "carrots",
            "onions",
            "rice",
            "cream",
        ],
        3,
    )
    t.fields |= {
        "a": a,
        "b": b,
        "c": c,
        "n": str(t.r.randint(2, 6)),
        "minutes": str(t.r.choice([10, 15, 20, 25, 30, 40, 45, 60])),
    }
    t.put(dish="[a cake|a soup|pancakes|a pie|a stew]")
    return [
        ("h", "[Let us make|I want to make] {dish}[!|.]"),
        ("o", "[Fine|Good idea]. What do we need?"),
        ("h", "^{a}, {b}, {c} and {n} eggs."),
        ("o", "We have {a} and {b}. But we have no {c}."),
        (
            "h",
            "[Then I will ask the neighbour for {c}|I will run to the shop for {c}|We could do it without {c}, just"
            " once].",
        ),
        ("o", "[And I will break the eggs|Meanwhile I will heat the oven]. How long does it take?"),
        ("h", "[The book says|It says here] {minutes} minutes."),
        ("o", "{minutes} minutes! [I am hungry now|We can tell stories until then|That is a long time]."),
    ]


@topic
def guess(t: Tale) -> Lines:
    """A guessing game that ends when it is guessed or given up."""
    low = t.r.randint(1, 80)
    high = low + 20
    secret = low + t.r.randint(2, 18)
    asked = 0
    lines: Lines = [
        ("h", f"I am thinking of a number between {low} and {high}. [Can you guess it|What is it]?")
    ]
    while asked < 8:
        number, asked = (low + high) // 2 if t.r.random() < 0.7 else t.r.randint(low, high), asked + 1
        lines.append(("o", f"[Is it {number}|{number}]?"))
        if number == secret:
            tries = "once" if asked == 1 else f"{NUMBERS[asked]} times"
            return [*lines, ("h", f"[Yes|Right]! It is {secret}. You asked {tries}.")]
        low, high = (number + 1, high) if number < secret else (low, number - 1)
        lines.append(("h", f"[No, it is|It is] {'more' if number < secret else 'less'} than {number}."))
    return [*lines, ("o", "[I give up|Tell me]!"), ("h", f"It was {secret}.")]


@topic
def choice(t: Tale) -> Lines:
    """Which of two: reasons on both sides."""
    a, b = t.r.sample(PLACES, 2)
    t.fields |= {"a": a, "b": b, "food": t.r.choice(FOODS)}
    t.put(
        pa="[it is nearer|one can sit in the shade there|there is music|I know everyone there|it costs nothing]",
        pb="[there is more to see|it is never crowded|it is new|one can get {food} there|we were at the {a} last week]",
    )
    last = (
        "[That is true|You win]. To the {b}, then."
        if t.r.random() < 0.5
        else "[Hm|Well], you are right, too. [Let us toss a coin|Heads for the {a}, tails for the {b}]."
    )
    return [
        ("h", "[Shall we go|Would you rather go] to the {a} or to the {b}?"),
        ("o", "To the {a}, because {pa}."),
        ("h", "[I like the {b} better|I would choose the {b}], because {pb}."),
        ("o", last),
        (
            "h",
            "[Agreed|Good]. [And next time we do it the other way round|And whoever is there first buys {food}].",
        ),
    ]


@topic
def pets(t: Tale) -> Lines:
    """How they have become so many."""
    animal = t.r.choice(["cat", "dog", "hen", "duck", "rabbit", "goat", "mouse", "snail", "goose", "sheep"])
    n = t.r.randint(1, 5)
    more = t.r.randint(2, 6)
    t.fields |= {
        "animals": pluralize(animal),
        "n": count_noun(n, animal),
        "m": count_noun(n + more, animal),
        "more": NUMBERS[more],
    }
    t.put(
        reason="[they had a family|a neighbour went on a journey|they just followed me home|I cannot say no|I found them in"
        " a box]",
        names="[after the days of the week|after my aunts|by numbers|after cities|after my teachers]",
    )
    return [
        ("o", "[How many {animals} do you have now|Do you still have {animals}]?"),
        ("h", "[Last year I had|It began with] {n}. Now I have {m}."),
        ("o", "^{m}? [How did that happen|Where do the other {more} come from|Why so many]?"),
        ("h", "[Well, {reason}|It is simple: {reason}]."),
        ("o", "[And how do you tell them apart|Do they have names]?"),
        ("h", "I call them {names}. [The {colour} one is my favourite|But they never come when I call]."),
        ("o", "[I would like to see that|You will need a bigger house]."),
    ]


@topic
def lesson(t: Tale) -> Lines:
    """One explains a small true thing to the other."""
    ask, answer, why, end = t.r.choice(
        [
            (
                "Why does ice float",
                "Because ice is lighter than water",
                "When water freezes, it takes more room",
                "So a lake freezes from the top",
            ),
            (
                "Why is the moon sometimes round and sometimes thin",
                "Because we see only the part that the sun lights",
                "The moon goes round us once a month",
                "So every month it grows and shrinks",
            ),
            (
                "Why do leaves fall in autumn",
                "Because the tree saves water",
                "In winter the ground is hard and gives little",
                "In spring new leaves come",
            ),
            (
                "How do bees find flowers",
                "They see colours and smell very well",
                "And they tell each other by a dance",
                "So one bee can send a hundred",
            ),
            (
                "Why does bread rise",
                "Because of the yeast",
                "It eats sugar and makes small bubbles",
                "The heat of the oven keeps them in place",
            ),
            (
                "Why do we see lightning before we hear the thunder",
                "Because light is faster than sound",
                "Count the seconds and divide them by three",
                "Then you know how many kilometres away it is",
            ),
            (
                "Why are days short in winter",
                "Because our part of the earth leans away from the sun",
                "So the sun stays low and sets early",
                "In summer it is the other way round",
            ),
            (
                "Where does the rain come from",
                "From the sea, most of it",
                "The sun lifts the water and the wind carries it",
                "In the cold air it falls again",
            ),
            (
                "Why do cats have whiskers",
                "They feel with them",
                "With them a cat knows if it fits through a hole",
                "Even in the dark",
            ),
            (
                "Why is the sea salty",
                "The rivers bring a little salt from the rocks",
                "The water goes up into the clouds, but the salt stays",
                "It took a very long time",
            ),
        ]
    )
    t.fields |= {"ask": ask, "answer": answer, "why": why, "last": end}
    return [
        ("h", "[May I ask you something?|I have a question.|You know so much.] {ask}?"),
        ("o", "[That is a good question.|I asked that too, once.|Oh, that is easy.] {answer}."),
        ("h", "[And why is that|How does that work|Can you say more]?"),
        ("o", "{why}. {last}."),
        (
            "h",
            "[Now I understand|I did not know that|I will tell that to my brother|So that is how it is]. [Thank"
            " you|Thanks]!",
        ),
    ]
