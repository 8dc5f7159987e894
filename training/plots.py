"""Plots of the stories: each plot is a wish, an obstacle, and an end that follows from the way."""

from __future__ import annotations

from collections.abc import Callable

from .tale import Tale
from .troubles import meet_trouble
from .words import COLOURS, HIDING, THINGS, join_words

PLOTS: list[Callable[[Tale], None]] = []
LOOKS = [
    "small",
    "big",
    "round",
    "old",
    "new",
    "heavy",
    "light",
    "pretty",
    "strange",
    "crooked",
    "shiny",
    "plain",
    *COLOURS,
    *COLOURS,
]
GOALS = [  # name, preposition, what it looks like
    ("old mill", "at", "[Its sails turned slowly|Flour lay on everything like snow|A cat sat on every step]"),
    (
        "lighthouse",
        "at",
        "[It stood white against the sky|A hundred and twelve steps led up|The sea roared at its foot]",
    ),
    (
        "castle",
        "in",
        "[Its towers looked over all the land|Ivy grew to the roof|Half of its windows were boarded up]",
    ),
    (
        "harbour",
        "in",
        "[The masts stood like a forest|It smelled of tar and fish|Gulls cried over the boats]",
    ),
    ("quiet lake", "at", "[The water was like glass|Reeds whispered on the bank|A heron stood on one leg]"),
    (
        "dark forest",
        "in",
        "[The firs stood close together|Moss lay on every stone|Not a bird was to be heard]",
    ),
    (
        "market square",
        "in",
        "[People called and laughed|The stalls were full of fruit|A fountain splashed in the middle]",
    ),
    (
        "high meadow",
        "on",
        "[The grass was full of flowers|The bells of goats rang from the slopes|One could see seven"
        " villages]",
    ),
    (
        "stone bridge",
        "at",
        "[It was older than anyone could say|Swallows nested under it|Its stones were warm]",
    ),
    (
        "library",
        "in",
        "[It smelled of paper and dust|The shelves went up to the ceiling|Somebody coughed behind a shelf]",
    ),
    (
        "windy hill",
        "on",
        "[From there one could see the sea|A single crooked tree grew there|The grass bent like water]",
    ),
    (
        "railway station",
        "at",
        "[The clock was always four minutes late|Nobody got off there but the postman|The rails sang]",
    ),
    (
        "glass house",
        "in",
        "[It was warm and green inside|Orange trees grew there, even in winter|Water dripped from the"
        " leaves]",
    ),
    (
        "island in the lake",
        "on",
        "[Nothing lived there but birds|An old hut stood under the pines|The beach was full of shells]",
    ),
    ("white cave", "in", "[Drops fell from the roof and every drop sang|Every word came back as an echo]"),
    (
        "school",
        "in",
        "[The chalk of the last lesson was still on the board|The benches were empty|A map hung on the wall]",
    ),
    (
        "orchard",
        "in",
        "[Ladders leaned against the trees|The branches hung low|A swing moved, though nobody sat on it]",
    ),
    ("clock tower", "at", "[It struck every quarter, and always a little late|Pigeons slept on its hands]"),
    (
        "last house of the village",
        "at",
        "[The shutters were closed|Beans climbed up to the roof|Smoke came from the chimney]",
    ),
    ("old inn", "in", "[A lamp burned over the door|The floor creaked|Three guests slept by the stove]"),
]


def plot(tell: Callable[[Tale], None]) -> Callable[[Tale], None]:
    """Register a plot."""
    PLOTS.append(tell)
    return tell


def choose_thing(t: Tale, key: str = "thing") -> None:
    """Choose a thing that is not there yet: {thing} is the plain noun, {thing.look} its look, {thing.full} both."""
    taken = [value for name, value in t.fields.items() if name.startswith("thing")]
    noun, look = t.r.choice([w for w in THINGS if w not in taken]), t.r.choice(LOOKS)
    t.fields |= {key: noun, f"{key}.look": look, f"{key}.full": f"{look} {noun}"}


def choose_goal(t: Tale) -> None:
    """Choose where to go: {goal}, {at} for in or at, {look} for what is seen there."""
    name, at, look = t.r.choice(GOALS)
    t.put(goal=f"the {name}", at=at, look=look)


def walk(t: Tale, most: int = 2) -> None:
    """Go on with one or more troubles on the way."""
    for _ in range(t.r.choice([1, 2, 2, most])):
        meet_trouble(t)
    t.rest()


def set_out(t: Tale) -> None:
    """Pack and leave."""
    t.rest()
    if t.r.random() < 0.7:
        t.pack(t.r.choice([1, 2, 3]))
        t.say(
            "[{h} packed {packed}, and off {they} went.|Into the bag went {packed}. Then {who} set out.|With {packed} in"
            ' the bag, {who} set out {now}.|"One never knows," said {h}, and put {packed} into the bag.]'
        )
        t.fact("What did {h} [take along|pack]?", "{packed}")
    else:
        t.say(
            "[So|And so] {who} [set out|set off|went on {their} way] {now}, [with empty hands|with light feet|without a"
            " plan|without looking back]."
        )
    t.say_maybe(0.6, f"It was {t.season}, and {t.weather}.", f"^{t.weather}.")


def ask_along(t: Tale) -> None:
    """The friend comes along, or has a reason not to."""
    t.line("h", "[Will you come with me|Will you help me|Do you have time today|Can you help me], {f}?")
    if t.r.random() < 0.6:
        t.line(
            "f",
            "[Of course I will|Yes, of course|What a question! Of course|I thought you would never ask]. [Two see"
            " more than one|I have nothing better to do|I would follow you to the end of the world|But I must be home"
            " for supper].",
        )
        t.join("f")
        return
    t.put(
        why="[I have a bad foot|I must mind the shop|my grandmother is ill|I promised to paint the fence|the bread is in"
        " the oven|my brother needs me|I have to learn for school|the cow is about to calve]"
        if not t.furry
        else "[I have a bad foot|my nest is not finished|my grandmother is ill|I promised to paint the fence|the bread is in"
        " the oven]"
    )
    t.line(
        "f",
        "I wish I could, but {why}. [Tell me everything when you are back|I will think of you|Be careful].",
    )
    t.say("[So {h} had to go alone|Then {h} would go alone|So {h} went alone].")
    t.fact("Why could {f} not come along?", "{why}")


def end(t: Tale, done: str) -> None:
    """The last paragraph: the gist of it all, and how the day ends."""
    t.rest()
    t.pass_time()
    told = t.r.sample(t.deeds, min(len(t.deeds), 2))
    begin = "[That was the day on which|And that is how|This is how|That is the story of how|So it was that] {who} "
    t.gist = t.draw(begin) + join_words([*told, t.draw(done)]) + "."
    feeling = (
        "[^{they} came home in the evening, [tired but happy|hungry and happy|with sore feet and a light heart].|In"
        " the evening {they} {was} home again.|That night {h} [could not sleep for joy|slept like a stone|dreamed of"
        " it all once more].|When {h} went to bed, the [moon|cat] [listened to the whole story|seemed to"
        " smile].|^{h} felt [a little taller|as light as a feather] that [evening|day].|At supper {h} told it all, and"
        " everyone forgot to eat.]"
    )
    last = (
        "[And if you go there, you can still hear the story.|Ever since, {h} has [never been afraid of a long way|always"
        " had time for others].|Nobody in the village has forgotten it.|And there was [cake|soup|cocoa] for everyone.|It"
        " was a good day.|The rest is another story.|And tomorrow was another day.]"
    )
    if t.r.random() < 0.5:
        t.say(feeling)
        t.blocks[-1].append(t.gist)
    else:
        t.blocks[-1].append(t.gist)
        t.say(last if t.r.random() < 0.6 else feeling)


@plot
def lost_thing(t: Tale) -> None:
    """A thing is gone; somebody saw where."""
    choose_thing(t)
    t.put(
        start="[from {h.his} [grandmother|grandfather|aunt|uncle]|as a birthday present|at the summer market|from an old"
        " sailor|for a [jar of honey|whole basket of plums|long day of work]]"
    )
    t.say(
        "{h} had a~ {thing.full}[| that nobody else was allowed to touch|, and took it everywhere|, the most precious thing"
        " in the house]. ^{h.she} had got it {start}."
    )
    t.fact("What did {h} lose?", "{thing.full}")
    t.fact("How did {h} get the {thing}?", "{start}")
    t.rest()
    t.put(
        s1=t.r.choice(HIDING[:7]),
        s2=t.r.choice(HIDING[7:]),
        thief="[the wind|a magpie|a jackdaw]"
        if t.furry
        else "[a magpie|a goat|the wind|a little dog|a fox|a jackdaw]",
    )
    t.say(
        "[One day|One {season} day|One Monday|One Sunday|On a~ {season} morning] [it|the {thing}] was gone.",
        "{h} looked {s1}. ^{h.she} looked {s2}. [Nothing|There was only dust|It was not there]."
        if t.r.random() < 0.5
        else "{h} [searched|looked] {s1} and {s2}, but [found only a~ {colour} button|it was not there|found nothing].",
    )
    t.line("h", "[Where is my {thing}|Has anyone seen my {thing}|Who took my {thing}]?")
    t.cast("e", unlike="h")
    choose_goal(t)
    t.rest()
    t.say("{e} the {e.job} [was just coming by|stood at the window|heard it|looked over the fence].")
    t.line(
        "e",
        "[I saw {thief} with something {thing.look}|It was {thief}, with something {thing.look}]. It went [off to|"
        "toward] {goal}.",
    )
    t.fact("Who had seen where the {thing} went?", "{e}")
    t.fact("What had taken the {thing}?", "{thief}")
    ask_along(t)
    set_out(t)
    walk(t)
    t.put(
        spot="[in a low birch|behind a stack of wood|in a nest of straw|under an upturned boat|on a window sill|between the"
        " roots of an oak|on the lowest branch|in an old bucket|under a heap of leaves]"
    )
    t.say(
        "[At last|Finally|In the end] {they} [came to|reached] {goal}. {look}.",
        "[And there|There], {spot}, [lay|was] the {thing.full}[, not even scratched|, a little dirty but whole|]!",
    )
    t.line("h", "[There you are|I have you back|I knew it]!")
    t.fact("Where was the {thing} found?", "{spot}")
    t.title = "[The lost {thing}|The {thing.full}|How {h} looked for a~ {thing}]"
    end(t, "got back the {thing.full}")


@plot
def deliver(t: Tale) -> None:
    """Something must be brought to somebody."""
    choose_thing(t)
    t.cast("e")
    t.cast("g", unlike="h")
    choose_goal(t)
    t.say(
        "[One morning|One {season} morning|On a Tuesday|On the way to school], {e} the {e.job} [called|stopped] {h}."
    )
    t.meet("e")
    t.line(
        "e",
        "[Would you do something for me?|I need somebody with good legs.|Do you have an hour for me?] This {thing}"
        " must get to {goal} [today|by tonight|before dark]. ^{g} is waiting for it.",
    )
    t.line("h", "[I will bring it there|You can count on me|I will be careful with it].")
    t.say(
        "It was a~ {thing.full}, [wrapped in paper|heavier than it looked|tied up with string|and it was not to get wet]."
    )
    t.fact("What did {h} have to bring to {goal}?", "{thing.full}")
    t.fact("For whom was the {thing}?", "{g}")
    t.fact("Who sent {h} to {goal}?", "{e}")
    ask_along(t)
    set_out(t)
    walk(t, 3)
    t.say(
        "[At last|Finally|Before dark] {they} reached {goal}. {look}.",
        "{g} [stood in the door|was waiting|came running|looked up from work].",
    )
    t.line("h", "[This is for you, from {e}|I bring you something from {e}].")
    t.say(
        "{g} [unwrapped|took] the {thing} and [was silent for a long time|smiled|turned it round and round]."
    )
    t.put(
        why="[it belonged to my mother|I have waited for it for ten years|without it I cannot work|it is the last piece of"
        " my collection|I thought it was lost for ever|my brother made it]",
        reward="[a bag of nuts|a silver coin|a warm pair of gloves|a jar of jam|a song|a place by the fire|a hot meal]",
    )
    t.line("g", "[Do you know what this is?|You cannot know what this means.] ^{why}.")
    t.say("[As thanks|For the long way] there was {reward}[| and a good word].")
    t.fact("What was the reward?", "{reward}")
    t.title = "[The long way to {goal}|A~ {thing} for {g}|The {thing.full}]"
    end(t, "brought the {thing.full} to {g}")


MAKINGS = [
    ("kite", ["paper", "two thin sticks", "a ball of string", "glue"]),
    ("boat", ["boards", "nails", "tar", "an old sail"]),
    ("cake", ["flour", "six eggs", "honey", "butter"]),
    ("swing", ["two ropes", "a plank", "some oil"]),
    ("puppet theatre", ["a wooden box", "red cloth", "candles", "paint"]),
    ("bird house", ["boards", "nails", "straw", "a tin roof"]),
    ("soup", ["carrots", "beans", "salt", "onions"]),
    ("lantern", ["wire", "coloured paper", "a candle"]),
    ("drum", ["a barrel", "an old skin", "a rope"]),
    ("scarecrow", ["straw", "an old coat", "a broomstick", "a hat"]),
    ("raft", ["four barrels", "planks", "rope", "a long pole"]),
    ("quilt", ["scraps of cloth", "wool", "a good needle"]),
    ("sledge", ["two runners", "a board", "a strong rope"]),
    ("pie", ["flour", "apples", "sugar", "a pinch of salt"]),
]
FAVOURS = [
    "sweep the yard",
    "carry water",
    "chop some wood",
    "feed the hens",
    "wash the windows",
    "find my glasses",
    "wind the wool",
    "read me a letter",
    "peel potatoes",
    "weed the garden",
    "hold the ladder",
    "sing me a song",
    "count the sacks",
    "polish my boots",
]


@plot
def make(t: Tale) -> None:
    """Something is made; each of its three parts costs a favour."""
    what, parts = t.r.choice(MAKINGS)
    parts, favours = t.r.sample(parts, 3), t.r.sample(FAVOURS, 3)
    food = what in ("soup", "cake", "pie")
    t.put(
        what=what,
        whom="[the birthday of {f}|the summer feast|the little ones|the whole street|a sick neighbour|the feast"
        " on Sunday]",
        p1=parts[0],
        p2=parts[1],
        p3=parts[2],
    )
    t.say(
        "{h} wanted to make a~ {what} for {whom}.",
        "[For that one needs|A good {what} needs] {p1}, {p2} and {p3}, and {h} had [nothing of all that|none of it|only"
        " good will].",
    )
    t.fact("What did {h} want to make?", "{what}")
    t.fact("For whom or what was the {what}?", "{whom}")
    if t.fields["f"] not in t.fields["whom"] and t.r.random() < 0.5:
        ask_along(t)
    for i, (part, favour) in enumerate(zip(parts, favours, strict=True)):
        t.rest()
        t.cast(f"m{i}")
        t.call("m", f"m{i}")
        t.fields |= {"p": part, "favour": favour}
        t.say(
            [
                "[First {who} went|The first way led] to {m} the {m.job}.",
                "[Next|Then] {they} went to {m} the {m.job}.",
                "[Last came {m} the {m.job}|At last {they} knocked at the door of {m} the {m.job}].",
            ][i]
        )
        t.line("h", "[Do you have|Could you give me|Have you got] {p}?")
        t.line("m", "[You can have {p}|I can give you {p}|Of course], if you {favour}.")
        t.say(
            "^{they} did it[, and did it well|, and it took an hour|, and even sang], and [got|went away with] {p}."
        )
        t.fact("Who gave {who} {p}?", "{m}")
        t.fact("What did {who} have to do for {p}?", "{favour}")
        if i == 1 and t.r.random() < 0.5:
            meet_trouble(t)
        t.pass_time(t.r.choice([0, 1]))
    t.rest()
    t.put(
        work="[stirred and tasted|mixed and cooked]"
        if food
        else "[cut and glued|hammered and sawed|measured and tied]",
        flaw="[a little too salty|a bit burnt at the edge|enough for thirty]"
        if food
        else "[a little crooked|too big for the door|not quite straight|patched in two places|a bit lopsided]",
    )
    t.say(
        "[Then the work began|Now everything was there], and {they} {work} until [late in the evening|the last light was"
        " gone|it was done].",
        "The {what} was {flaw}, but [nobody minded|everybody loved it|it was the best in the world].",
    )
    t.fact("What was the {what} like?", "{flaw}")
    t.title = "[The {what}|How {h} made a~ {what}|A~ {what} for {whom}]"
    end(t, "made a~ {what} out of {p1}, {p2} and {p3}")


@plot
def heal(t: Tale) -> None:
    """Somebody is ill, and what helps grows far away."""
    t.cast("e")
    t.put(
        sick="[grandmother|grandfather|little brother|little sister|mother|father|old neighbour|aunt]",
        cure="[a blue flower|wild mint|water from the cold spring|silver moss|three yellow berries|the root of a fern|white"
        " clover|a pine cone]",
        tea="[made a tea of it|cooked it with honey|mixed it with warm milk]",
    )
    choose_goal(t)
    t.say(
        "{h}'s {sick} [was ill|had a bad fever|had been coughing for a week|lay in bed and would not eat].",
        "[{e} the {e.job} came, and|They sent for {e} the {e.job}, who] [looked serious|thought for a while].",
    )
    t.line(
        "e",
        "[There is only one thing that helps|I know what would help]: {cure}. [One can only find that|You will only"
        " find that] near {goal}.",
    )
    t.line("h", "[Then I will get it|I will go at once|I will be back before tomorrow].")
    t.fact("Who was ill?", "{sick}")
    t.fact("What did {h} have to find?", "{cure}")
    t.fact("Who knew what would help?", "{e}")
    ask_along(t)
    set_out(t)
    walk(t, 3)
    t.put(
        nook="[between two stones|behind a waterfall|under a thorn hedge|at the foot of a wall|in the shade of a"
        " rock|beside a rotten log]"
    )
    t.say(
        "[Then|At last|Finally] {goal} lay before {them}. {look}.",
        "{h} searched [for a long time|everywhere], and {nook} {h.she} found it: {cure}.",
    )
    t.fact("Where did {h} find {cure}?", "{nook}")
    t.rest()
    t.put(dish="[some pancakes|some soup|some porridge|an apple|a cup of cocoa]")
    t.say(
        "[At home|Back home] {e} {tea}. [The next morning|After two days|Before the night was over] {h}'s {sick} sat up in"
        " bed.",
        '"[Could I have|May I have] {dish}?"',
    )
    t.fact("What did {h}'s {sick} ask for at the end?", "{dish}")
    t.title = "[The way to {goal}|What helps|^{cure}]"
    end(t, "found {cure} for {h.his} {sick}" if t.is_alone else "found {cure} for the {sick} of {h}")


BROKEN = [
    ("clock on the tower", "a little brass wheel", "nobody knew when to go to school"),
    ("mill", "a new cog of oak", "there was no flour in the village"),
    ("lighthouse lamp", "a glass lens", "the ships could not find the way"),
    ("church bell", "a new clapper", "Sundays were strangely quiet"),
    ("bus", "a rubber belt", "everyone had to walk"),
    ("village pump", "a leather ring", "all the water had to be carried from the river"),
    ("oven of the bakery", "a fire brick", "there was no bread in the morning"),
    ("merry-go-round", "a long iron pin", "the wooden horses stood still"),
    ("school piano", "seven strings", "every song had holes in it"),
    ("ferry", "a strong chain", "nobody could cross the river"),
    ("big telescope", "a round mirror", "nobody had seen the moon up close"),
    ("cable car", "a steel hook", "the people on the mountain got no letters"),
]


@plot
def repair(t: Tale) -> None:
    """What all need is broken, and only one person has the missing part."""
    what, part, since = t.r.choice(BROKEN)
    t.fields |= {"what": what, "part": part, "since": since}
    t.cast("e", unlike="h")
    t.cast("g")
    choose_goal(t)
    t.say(
        "The {what} was broken[, and had been for weeks|]. [Since then|From that day on] {since}.",
        "{e} the {e.job}, who [knew about such things|had repaired it three times], looked at it [for a whole day|from all"
        " sides|twice].",
    )
    t.line(
        "e", "[What is missing is|All it needs is] {part}. Only one person could have that: {g}, {at} {goal}."
    )
    t.line("h", "[I will go and ask|Then I will ask {g}|I have good legs].")
    t.fact("What was broken?", "{what}")
    t.fact("What was missing?", "{part}")
    t.fact("Who had what was missing?", "{g}")
    ask_along(t)
    set_out(t)
    walk(t, 3)
    t.put(
        want="[a story from the village|news of my old friend {e}|a day of help with the harvest|the first honey of the"
        " year|a postcard every month|a song for my birthday|nothing but a good word]"
    )
    t.say(
        "[At last|Finally] {they} stood {at} {goal}. {look}. {g} listened [to the end|without a word|and nodded]."
    )
    t.line("g", "[You can have it|It is yours]. [For it I want|In return I want] {want}.")
    t.say("[That was easily promised|It was a good price|They shook hands on it].")
    t.fact("What did {g} want in return?", "{want}")
    t.rest()
    t.say(
        "[Back in the village|The next day|Three days later] {e} put {part} in its place, [turned a screw|tapped it twice],"
        " and [everyone held their breath|nobody dared to breathe].",
        "Then the {what} [worked|was as good as new][|, and people cheered|, and some danced in the street].",
    )
    t.title = "[The {what}|How {h} found {part}]"
    end(t, "helped to repair the {what}")


GHOSTS = [
    (
        "a low humming",
        "a swarm of bees in an old piano",
        "the piano stayed where it was, and the honey was very good",
    ),
    ("slow steps", "a hedgehog in a paper bag", "the hedgehog got some apples and its freedom"),
    ("a thin whistling", "the wind in a cracked bottle", "the bottle got a place of honour on the shelf"),
    ("a soft knocking", "a woodpecker that could not sleep", "the woodpecker was shown a better tree"),
    ("a sad singing", "a lonely night watchman", "the watchman was invited to the choir"),
    ("a bright light", "a mirror that caught the moon", "the mirror was turned to the wall"),
    (
        "a strange rattling",
        "a chest full of coins and a busy mouse",
        "the coins paid for a new roof, and the mouse could stay",
    ),
    ("a wild laughing", "two owls on a beam", "the owls kept the place to themselves"),
    ("a green glow", "a heap of glowing mushrooms", "a jar of them lit the kitchen for a week"),
    (
        "a sound of drums",
        "a dripping roof over a row of barrels",
        "the barrels were turned over, all except one",
    ),
    ("a deep snoring", "a tired tramp in the hay", "the tramp got breakfast and a better bed"),
    ("a scratching", "a cat with five kittens", "every kitten found a home"),
]


@plot
def mystery(t: Tale) -> None:
    """Something is heard at night; it turns out to be harmless."""
    sound, cause, after = t.r.choice(GHOSTS)
    choose_goal(t)
    t.fields |= {"sound": sound, "cause": cause, "after": after}
    t.say(
        "[For three nights|For a week|Night after night] there had been {sound} {at} {goal}.",
        "[Nobody|No one] in the village knew where it came from. [Some said it was a ghost|The old people spoke of a"
        " curse|Many locked their doors].",
    )
    t.cast("e")
    t.line(
        "e",
        "[It is a ghost|There is something alive in there|It was the same when I was young]. [Stay away|Do not go"
        " there|Keep your windows shut]!",
    )
    t.say(
        "[That was {e} the {e.job}, who had never been afraid before|And {e} the {e.job} was not easily frightened|{e} the"
        " {e.job} said that to everyone]."
    )
    t.line("h", "[I do not believe in ghosts|I want to know what it is|There is a reason for everything].")
    t.fact("What had the people noticed at night?", "{sound}")
    t.fact("Who warned {h}?", "{e}")
    ask_along(t)
    t.hour = 3
    set_out(t)
    walk(t)
    t.hour = 5
    t.say(
        "It was [midnight|almost midnight|late] when {they} stood {at} {goal}. {look}.",
        "[And there it was|There it was again]: {sound}[, quite near|, clearer than before|].",
    )
    t.say(
        "{h} [held {h.his} breath|counted to three], [took another step|pushed the last branch aside|looked round the"
        " corner], and [began to laugh|saw it]. It was {cause}!"
    )
    t.line(t.friend(), "[And that is all|So that was the ghost|And everyone was afraid of that]!")
    t.say("[So|In the end] {after}.")
    t.fact("What was it really?", "{cause}")
    t.title = "[The ghost of {goal}|^{sound} in the night]"
    end(t, "found out that the ghost was {cause}")


CONTESTS = [
    ("kite race", "the string broke"),
    ("cake contest", "the oven went out"),
    ("boat race", "one oar cracked"),
    ("singing contest", "the voice of {h} was gone"),
    ("running race", "a shoe came off"),
    ("drawing contest", "the ink ran over the paper"),
    ("pumpkin show", "the biggest pumpkin rolled down the hill"),
    ("snail race", "the snail fell asleep"),
    ("story contest", "{h} forgot the end of the story"),
    ("chess tournament", "a cat knocked over the board"),
    ("sandcastle contest", "a wave came too far"),
    ("dancing contest", "the music stopped"),
]


@plot
def contest(t: Tale) -> None:
    """A prize, a rival, a mishap; won, lost or shared."""
    kind, mishap = t.r.choice(CONTESTS)
    t.put(
        kind=kind,
        mishap=mishap,
        day="the [last Saturday of the month|last day of the holidays|day of the big"
        " fair|birthday of the mayor|day of the boat feast]",
        days="[ten|eight|six|twelve|twenty] days",
        prize="[a silver cup|a golden ribbon|a barrel of apples|a new bicycle|a ticket for the boat|a set of paints|a book"
        " with empty pages|a brass telescope]",
        times="[three times|every year|the last five times|twice]",
    )
    t.cast("e")
    t.cast("g", unlike="h")
    t.say(
        "On {day} there was to be a {kind} in the village. The prize was {prize}.",
        "{h} wanted to win it [more than anything|for once|this time], but {g} had won {times}.",
        "{e} the {e.job}[, who had seen them all,|] gave {h} some advice.",
    )
    t.line("e", "[It takes more than luck|You have to practise|Do it slowly, and do it every day].")
    t.say(
        "So {h} practised for {days}, [in the rain too|before school and after|until the neighbours begged for a rest]."
    )
    t.fact("What was the prize?", "{prize}")
    t.fact("When was the {kind}?", "{day}")
    t.fact("Who had won before?", "{g}")
    t.fact("How long did {h} practise?", "{days}")
    t.rest()
    t.say(
        "Then the day came[| at last]. [Flags hung from the windows|The whole village was there|A brass band played], "
        f"and {t.weather}."
    )
    if t.r.random() < 0.6:
        t.met |= {"hunger", "darkness", "storm", "fear", "market"}
        t.say("But on the way there, something came between.")
        meet_trouble(t)
        t.rest()
        t.say("[Out of breath|Just in time], {h} arrived.")
    t.say("[All went well at first|At first all went well]. Then {mishap}!")
    t.fact("What went wrong?", "{mishap}")
    way = t.r.choice(["help", "win", "lose"])
    t.title = "[The {kind}|^{prize}]"
    if way == "help":
        t.say("{g} saw it. [Anyone else|Another] would have [gone on|laughed], but {g} came over and helped.")
        t.line(
            "g",
            "[It is no fun to win like that|I want to win against you, not against bad luck|Now we are even].",
        )
        t.say(
            "[So they finished at the same time|In the end nobody could say who was better], and they shared the prize."
        )
        end(t, "shared {prize} with {g}")
    elif way == "win":
        t.put(
            idea="[asked {f} for help|laughed and started again|thought of what {e} had said, and went on|counted to ten"
            " and began anew]"
        )
        t.say(
            "But {h} did not give up. ^{h.she} {idea}.",
            "And [really|indeed], it was enough. {g} was the first to [clap|shake hands].",
        )
        t.fact("What did {h} do when it went wrong?", "{idea}")
        end(t, "won {prize}")
    else:
        t.put(place="[second|third|last]")
        t.say(
            "{h} came {place}, and {g} got the prize. {h} [swallowed|looked at the ground], then [went over|smiled] and"
            ' said, "Well done."'
        )
        t.line(
            "g",
            "[Next year you will beat me. Shall we practise together|Nobody ever came so close. Shall we practise"
            " together|Will you show me how you began]?",
        )
        t.fact("Which place did {h} get?", "{place}")
        end(t, "lost a {kind} and [found|made] a new friend")


@plot
def owner(t: Tale) -> None:
    """A thing is found, and its owner looked for from door to door."""
    choose_thing(t)
    t.cast("g", unlike="h")
    t.put(
        spot="[on the road|under a bench|by the well|in the grass|on the beach|on the steps of the school|at the bus"
        " stop|in front of the bakery]",
        mark="[the letter "
        + t.fields["g"][0]
        + " scratched into it|a tiny star on one side|a dent on the left|a smell of"
        " lavender|a knot of red thread on it|a drop of blue paint on it]",
    )
    t.say(
        "[One {season} [morning|day|afternoon]|On the way home|One day after school] {h} found a~ {thing.full} {spot}."
    )
    t.line("h", "[Somebody must be missing this|This is not mine|Whoever lost this will be sad].")
    t.say(
        "It had {mark}[, and nothing else to tell whose it was|]. So {h} took it along and went from door to door."
    )
    t.fact("What did {h} find?", "{thing.full}")
    t.fact("Where did {h} find the {thing}?", "{spot}")
    t.fact("By what could one know the {thing}?", "{mark}")
    t.put(other=t.r.choice([c for c in COLOURS if c != t.fields["thing.look"]]))
    t.rest()
    t.cast("a")
    t.say("[At the first door stood|The first was|First came] {a} the {a.job}.")
    t.line("h", "[Is this your {thing}|Does this belong to you|Have you lost a~ {thing}]?")
    t.line(
        "a",
        "[No|Not mine|I am sorry, no], [mine is {other}|I have never owned one|mine hangs on the wall|I gave mine"
        " away long ago].",
    )
    t.rest()
    t.cast("b")
    choose_goal(t)
    t.say("[The next was|Then came|Next door lived] {b} the {b.job}.")
    t.line("h", "[And yours|Is it yours, perhaps|Have you lost a~ {thing}]?")
    t.line("b", "[No|Not mine], but I know who has been looking for one. [Try|Go to] {goal}.")
    t.fact("Who knew where to look for the owner?", "{b}")
    if t.r.random() < 0.5:
        ask_along(t)
    set_out(t)
    walk(t)
    t.say(
        "[^{at} {goal} sat|The way ended {at} {goal}. There sat] {g}, [with a sad face|all alone|looking at the"
        " ground|turning every stone]."
    )
    t.line("h", "[What have you lost|What are you looking for]?")
    t.line("g", "My {thing}, a~ {thing.full}, with {mark}.")
    t.say(
        "[Without a word|With a big smile] {h} held it out. {g} [jumped up|did not know what to say|laughed and cried at"
        " once]."
    )
    t.fact("To whom did the {thing} belong?", "{g}")
    t.title = "[Whose {thing}|The {thing} nobody knew|The {thing.full}]"
    end(t, "gave the {thing.full} back to {g}")


SKILLS = [
    ("play the violin", "it sounded like a cat in a bucket", "played a whole dance without a mistake"),
    ("swim", "{h.she} swallowed half of the lake", "swam to the far bank and back"),
    ("whistle", "nothing came but air", "whistled so loud that all the dogs came"),
    ("bake bread", "the loaf was as hard as a stone", "took a golden loaf from the oven"),
    ("ride a bicycle", "{h.she} landed in the rose bush", "rode round the square without hands"),
    ("juggle", "three eggs lay on the floor", "kept five apples in the air"),
    ("tie a sailor's knot", "the boat drifted away", "tied a knot that no storm could open"),
    ("skip stones", "every stone sank at once", "made a stone skip nine times"),
    ("paint", "the horse looked like a sofa", "painted a horse that everyone knew at once"),
    ("dance", "{h.she} stepped on every foot in the room", "danced until the candles were down"),
    ("read the stars", "{h.she} mixed up the bear and the swan", "found the way home by the stars alone"),
    ("knit", "the scarf became a knot", "knitted a scarf as long as the street"),
    ("walk on stilts", "{h.she} fell into the pond", "walked through the whole village on stilts"),
    ("play the drum", "the hens stopped laying", "drummed so well that even the hens kept time"),
]


@plot
def learn(t: Tale) -> None:
    """A skill, a teacher far away, a rule, and time."""
    skill, fail, show = t.r.choice(SKILLS)
    t.put(skill=skill, fail=fail, show=show)
    t.cast("e", unlike="h")
    choose_goal(t)
    t.say("{h} wanted to learn to {skill}. [The first try went badly|The beginning was hard]: {fail}.")
    t.line(
        "f",
        "[You need a teacher|Nobody can do that without a teacher]. [Ask {e}, who lives|^{e} lives|I know one: {e}]"
        " {at} {goal}.",
    )
    t.fact("What did {h} want to learn?", "{skill}")
    t.fact("Who could teach {h}?", "{e}")
    set_out(t)
    walk(t)
    t.say("{e} [lived|sat] {at} {goal}. {look}.")
    t.meet("e")
    t.line("h", "[Will you teach me|Can you teach me|Could you show me how] to {skill}?")
    t.put(
        rule="[begin again when it goes wrong|listen before you do anything|be slow, slower than you like|do it badly a"
        " hundred times|never look at your feet|laugh when it goes wrong|stop while it is still fun]",
        time="[a week|ten days|a whole month|the whole {season}|forty days]",
    )
    t.line("e", "[On one condition|There is only one rule|The secret is simple]: {rule}.")
    t.say(
        "So {h} [practised|tried and tried] for {time}. [Some days were good, most were not|On some evenings {h.she} wanted"
        " to give up|On the third day {h.she} nearly cried]."
    )
    t.line("e", "[Again|Once more|That was better]!")
    t.fact("What was the rule of {e}?", "{rule}")
    t.fact("How long did {h} practise?", "{time}")
    t.rest()
    t.say(
        "[And then, one morning|Then, one evening], {h} {show}. [{f} stood there with an open mouth|{e} said nothing and"
        " smiled|Nobody was more surprised than {h}]."
    )
    t.title = "[How {h} learned to {skill}|The teacher {at} {goal}]"
    end(t, "learned to {skill}")


PLANTS = [
    ("bean", "bean plant"),
    ("pumpkin seed", "pumpkin"),
    ("apple pip", "little tree"),
    ("sunflower seed", "sunflower"),
    ("acorn", "little oak"),
    ("cherry stone", "little tree"),
    ("tulip bulb", "tulip"),
    ("melon seed", "melon"),
    ("rose cutting", "rose"),
]


@plot
def grow(t: Tale) -> None:
    """A seed, a long wait, a pest, and a friend who was wrong."""
    seed, plant = t.r.choice(PLANTS)
    t.season = "spring"
    t.sky = "sunny"
    t.hour = 1
    t.cast("e")
    t.put(
        seed=seed,
        plant=plant,
        place="[behind the house|in an old boot|in a pot on the window sill|beside the wall|in a"
        " cracked bucket|at the end of the garden]",
        pest="[caterpillars|beetles|the frost]"
        if t.furry
        else "[snails|sparrows|a mole|a hungry goat|caterpillars]",
        weeks="[two|three|four|five] weeks",
        guard="[a ring of ash|a fence of sticks|an old net|a scarecrow with a~ {colour} hat|a row of onions]",
    )
    t.say("[In March|In April|When the snow was gone] {e} the {e.job} gave {h} a~ {seed}.")
    t.line(
        "e",
        "[It needs water, sun and patience, and most of all patience|Plant it, and do not dig it up to see how it is"
        " doing|It is small, but there is a lot in it].",
    )
    t.say(
        "{h} planted it {place} and watered it [every morning|every evening]. Nothing happened for {weeks}.",
        "[{f} shook {f.his} head|{f} laughed|Even {f} lost hope].",
    )
    t.line("f", "[Nothing will come of it|Maybe it is a stone|Throw it away and buy one at the market].")
    t.line("h", "[I will wait one more day|It is only sleeping|Good things take their time].")
    t.fact("What did {e} give to {h}?", "{seed}")
    t.fact("Where did {h} plant it?", "{place}")
    t.fact("How long did nothing happen?", "{weeks}")
    t.rest()
    t.say(
        "Then, one morning, there was a [green tip|tiny leaf|crack in the earth]. {h} [ran through the house|did not even"
        " have breakfast|called everyone].",
        "But [that was not the end of it|trouble came too]: {pest}!",
    )
    t.line("f", "[I know what to do|I am sorry that I laughed. I will help you|My grandmother had a trick].")
    t.say("{f} put {guard} around it, and [from then on it was safe|that helped].")
    t.fact("What trouble came?", "{pest}")
    t.fact("What did {f} put around the plant?", "{guard}")
    t.join("f")
    if t.r.random() < 0.6:
        t.season = "summer"
        t.rest()
        t.say("In [June|July] {they} went to fetch [good earth|water from the spring|a long pole for it].")
        meet_trouble(t)
    t.rest()
    t.say(
        "[In August|At the end of summer] there was a~ {plant}[, the finest in the village|, and the whole street came to"
        " see it|, and bees hummed around it]."
    )
    t.title = "[The {seed}|{h} waits|A~ {seed} and a lot of patience]"
    end(t, "grew a~ {plant} from a~ {seed}")


@plot
def swap(t: Tale) -> None:
    """A thing is swapped for another, three times over."""
    keys = ("thing1", "thing2", "thing3", "thing4")
    for key in keys:
        choose_thing(t, key)
    t.put(
        why="[it was the birthday of {f}|{f} had broken an old one|{f} had wished for one for years|the school needed"
        " one|the old one was gone]"
    )
    t.say(
        "{h} [badly needed|wanted|had to get] a~ {thing4}, for {why}. But {h} had no money, only a~ {thing1.full}."
    )
    t.line("h", "[Then I will swap|Everything can be swapped|Somebody must want a~ {thing1}].")
    t.fact("What did {h} need?", "{thing4}")
    t.fact("What did {h} have at the beginning?", "{thing1.full}")
    meet = [
        "[First {h} met|On the corner stood|At the fountain sat]",
        "[Then {h} met|In the next street lived|On a bench sat]",
        "[At last {h} came to|At the end of the road lived]",
    ]
    for i in range(3):
        t.rest()
        t.cast(f"m{i}")
        t.call("m", f"m{i}")
        t.fields |= {
            "give": t.fields[keys[i]],
            "get": t.fields[keys[i + 1]],
            "got": t.fields[keys[i + 1] + ".full"],
        }
        t.say(meet[i] + " {m} the {m.job}[, who had a~ {got}|].")
        t.line(
            f"m{i}",
            "[What a fine {give}|That is a fine {give}|I have always wanted a~ {give}|Just such a~ {give} is what"
            " I need]!",
        )
        t.line(
            "h",
            "[Would you give me your {get} for it|Do you have a~ {get} to give for it|Shall we swap it for your"
            " {get}]?",
        )
        t.say(
            "[They shook hands|That was a good swap for both|{m} did not have to think long]. Now {h} had a~ {got}."
        )
        t.fact("Who got the {give}?", "{m}")
        t.fact("What did {m} give for the {give}?", "{got}")
        if i < 2 and t.r.random() < 0.5:
            meet_trouble(t)
    t.rest()
    t.say("{f} [could not believe it|looked at the {thing4} from all sides|laughed out loud].")
    t.line("f", "[And all that for a~ {thing1}|You did that with a~ {thing1}]?")
    t.deeds.clear()
    t.title = "[The long swap|From a~ {thing1} to a~ {thing4}|A good swap]"
    end(t, "turned a~ {thing1.full} into a~ {thing2}, a~ {thing3} and at last a~ {thing4.full}")


@plot
def newcomer(t: Tale) -> None:
    """A new neighbour is shy; a walk together helps."""
    t.cast("g", young=True, unlike="h")
    choose_thing(t)
    t.put(
        origin="[from the city|from the other side of the mountains|from an island|from the north|from far away|from the"
        " coast]",
        house="[at the corner|by the river|next door|with the green door]",
        secret="[miss my old friends|can play three songs on a comb|was afraid that nobody would talk to me|have never seen"
        " so much grass|know how to make paper boats|had a dog that stayed behind|cannot sleep without a light]",
    )
    t.say(
        "[On Monday|In the first week of {season}|On the first day of school] somebody new moved into the empty house"
        " {house}: {g}, a~ {g.kind} {origin}.",
        "{g} [spoke to nobody|sat on the steps all day|looked only at the ground].",
    )
    t.line("f", "[^{g} is strange|Maybe {g.she} does not like us|Let us leave {g} alone].")
    t.line("h", "[Maybe {g.she} is only shy|I would be sad too, in a new place|I was new once, too].")
    t.say("{h} had [seen|noticed] that {g} always carried a~ {thing.full}[, and that gave {h.her} an idea|].")
    t.fact("Where did {g} come from?", "{origin}")
    t.fact("What did {g} always carry?", "{thing.full}")
    t.fact("Who moved into the empty house?", "{g}")
    choose_goal(t)
    t.rest()
    t.line("h", "[Do you want to see|Shall I show you|Have you been to] {goal}?")
    t.say(
        "{g} [nodded|thought about it for a long time and nodded|said yes, so softly that it was hardly to be heard]."
    )
    t.join("g")
    set_out(t)
    walk(t)
    t.say("[Then|At last] they sat {at} {goal}. {look}.")
    t.line("g", "[Shall I tell you something|Do you know what]? I {secret}.")
    t.line("h", "[Thank you for telling me|I am glad that you told me|Tell me more].")
    t.fact("What did {g} tell {h} {at} {goal}?", "I {secret}")
    t.put(after="[greeted everyone|sat beside {h} at school|waited at the gate in the morning]")
    t.say(
        "[The next day|From then on] {g} {after}, [and {f} asked to come along|and even {f} was glad|and nobody thought {g}"
        " strange any more]."
    )
    t.title = "[The new neighbour|{g}|Somebody new]"
    end(t, "became friends")


STUCK = [
    ("kitten", "on the roof of the church", "a long ladder"),
    ("little owl", "in the chimney", "a strong rope"),
    ("calf", "in the swamp", "six strong planks"),
    ("goat", "on a narrow ledge", "a sling of cloth"),
    ("puppy", "in a dry well", "a bucket on a chain"),
    ("duckling", "in a drain", "a fishing net"),
    ("pony", "behind a fallen tree", "a big saw"),
    ("lamb", "on a rock in the river", "a flat boat"),
    ("swan", "in the ice of the lake", "a long board"),
    ("parrot", "in the highest poplar", "a bowl of nuts"),
    ("hen", "under the floor of the barn", "a crowbar"),
    ("tortoise", "between two stones", "a lever"),
]


@plot
def rescue(t: Tale) -> None:
    """An animal is stuck, and what would help must be fetched."""
    pet, spot, tool = t.r.choice(STUCK)
    if "ice" in spot:
        t.season, t.sky = "winter", "cloudy"
    t.cast("e", unlike="h")
    choose_goal(t)
    t.fields |= {
        "pet": t.r.choice(["chick", "baby bird", "little bat"]) if t.furry else pet,
        "spot": spot,
        "tool": tool,
    }
    t.put(
        name="[Pepper|Button|Snowball|Biscuit|Bramble|Pip|Cinnamon|Domino|Dumpling|Clover|Thimble|Noodle|Pickle|Patch|Acorn]"
    )
    t.say(
        "One {season} [morning|afternoon] everybody heard it: {name}, the {pet} of {f}, was stuck {spot}.",
        "{f} [ran up and down|did not know what to do|cried and called].",
    )
    t.line(
        "f",
        "[Help|Please help|Somebody help]! [Poor {name} cannot get away from there|^{name} is afraid|What shall I do"
        " without {name}]!",
    )
    t.line("h", "[We need {tool}|With {tool} it could work|I know what we need: {tool}].")
    t.say("But nobody had that except {e}, the {e.job} {at} {goal}[, half a day away|].")
    t.fact("What was the name of the {pet}?", "{name}")
    t.fact("Where was {name} stuck?", "{spot}")
    t.fact("What did {h} need?", "{tool}")
    t.fact("Who had it?", "{e}")
    set_out(t)
    walk(t)
    t.say("^{at} {goal}, {e} [did not ask long|understood at once|dropped everything].")
    t.line(
        "e",
        "[Take it|Take it and run|You can have it]. [Bring it back when you can|Every minute counts|You can tell me"
        " later what happened].",
    )
    t.rest()
    t.say(
        "When {h} was back, [everybody held their breath|the whole village looked on]. {h} [spoke softly|sang a little"
        " song|whispered the name again and again], [moved inch by inch|reached out a hand], and then {name} was"
        " [safe|free].",
        "{f} held {name} [tight|close] and [would not let go|laughed with wet eyes].",
    )
    t.title = "[How {name} was saved|{name}|The {pet} {spot}]"
    end(t, "saved {name} the {pet} with {tool}")


@plot
def quarrel(t: Tale) -> None:
    """Two friends quarrel, and one makes the first step."""
    choose_thing(t)
    t.put(
        reason="[who should have it first|who had broken it|whose turn it was|who had found it|what it was for]",
        days="[one day|two days|three days|a whole week]",
        deal="[take turns, week by week|paint it in two colours|give it to the little ones|keep it at the school|use it"
        " only together]",
    )
    t.say(
        "{h} and {f} shared a~ {thing.full}. [They had never quarrelled before|Until that day it had always gone well]. But"
        " then they did: about {reason}."
    )
    t.line("f", "[You always think only of yourself|You are not my friend any more|You never listen]!")
    t.line("h", "[Then keep your silly {thing}|Then go home|And you are no better]!")
    t.say(
        "{f} [slammed the door|ran off|left without another word]. The {thing} lay [between two chairs|on the floor|in the"
        " corner], and nobody wanted it now."
    )
    t.fact("What did {h} and {f} share?", "{thing.full}")
    t.fact("About what did they quarrel?", "{reason}")
    t.rest()
    t.cast("e", unlike="h")
    choose_goal(t)
    t.say(
        "For {days} {h} [played alone|talked only to the cat|sat at the window]. [It was no fun|Everything tasted of"
        " paper]. Then {h.she} told it to {e} the {e.job}."
    )
    t.line(
        "e",
        "[The one who is sorry first is the stronger one|A quarrel is like a stone in a shoe. Do not wait until it"
        " hurts|Pride is a bad breakfast].",
    )
    t.line("h", "[Where is {f} now|Have you seen {f}]?")
    t.line("e", "I saw {f} go to {goal}[| this morning].")
    t.fact("Whom did {h} ask for advice?", "{e}")
    t.fact("How long did the quarrel last?", "{days}")
    set_out(t)
    walk(t)
    t.deeds.clear()  # what was done alone is no deed of both
    t.say("^{at} {goal} sat {f}. {look}. [For a while nobody spoke|They looked at each other].")
    t.line("h", "[I am sorry|I was wrong|I was unfair, and I am sorry].")
    t.line("f", "[I was on my way to you to say the same|I am sorry too|And I was stubborn, too].")
    t.say("[On the spot|Then and there] they agreed to {deal}.")
    t.fact("What did they agree to do?", "{deal}")
    t.join("f")
    t.title = "[The quarrel|The {thing.full}|A stone in a shoe]"
    end(t, "made up after the quarrel about the {thing}")
