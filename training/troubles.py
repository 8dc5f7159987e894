"""What happens on the way: each trouble fits some states of the tale, and changes the state by how it ends."""

from __future__ import annotations

from collections.abc import Callable

from .tale import Tale
from .words import NUMBERS

Fits = Callable[[Tale], bool]
TROUBLES: list[
    tuple[Fits, set[str], Callable[[Tale], None]]
] = []  # when it can come, what helps, the function that narrates it
RIDDLES = [  # question, answer, a wrong guess
    ("What has hands but cannot clap", "a clock", "a glove"),
    ("What has teeth but cannot bite", "a comb", "an old dog"),
    ("What gets wetter the more it dries", "a towel", "the rain"),
    ("What has a neck but no head", "a bottle", "a swan"),
    ("What can you catch but not throw", "a cold", "a fish"),
    ("What has one eye but cannot see", "a needle", "a pirate"),
    ("What goes up and never comes down", "your age", "smoke"),
    ("What has a bed but never sleeps", "a river", "an owl"),
    ("What has words but never speaks", "a book", "a fish"),
    ("What runs but has no legs", "water", "a snake"),
    ("What belongs to you but is used more by others", "your name", "my bed"),
    ("What is full of holes but still holds water", "a sponge", "a bucket"),
    ("What comes once in a minute, twice in a moment and never in a year", "the letter m", "a good idea"),
    ("What follows you all day and leaves you at night", "your shadow", "a dog"),
    ("What gets bigger the more you take away", "a hole", "hunger"),
    ("What has keys but opens no door", "a piano", "a map"),
    ("What has roots that nobody sees", "a mountain", "a tooth"),
    ("What breaks when you say its name", "silence", "a promise"),
    ("What has many leaves but is not a tree", "a book", "a cabbage"),
    ("What flies without wings", "time", "a stone"),
    ("What has a face and two hands but no arms", "a clock", "a doll"),
    ("What has a tongue but cannot talk", "a shoe", "a fish"),
    ("What gets sharper the more you use it", "your mind", "a saw"),
    ("What is yours even after you give it away", "your word", "a cold"),
    ("What can fill a whole room and takes no space", "light", "a song"),
    ("What has a ring but no finger", "a telephone", "a tree"),
]
SIGHTS = {  # what can be seen on the way, by season
    "spring": (
        "Lambs jumped on the slopes.",
        "The first swallows were back.",
        "The cherry trees were white.",
        "Everywhere water ran and dripped and gurgled.",
        "It smelled of wet earth.",
    ),
    "summer": (
        "Dust lay on every leaf.",
        "The crickets sang in the dry grass.",
        "The corn stood as high as {h}.",
        "A lark hung high above the fields.",
        "It smelled of hay and hot stone.",
    ),
    "autumn": (
        "Red and yellow leaves danced along the road.",
        "Wild geese passed over, all in one long line.",
        "Smoke rose from the fields.",
        "There were mushrooms under the birches.",
        "It smelled of apples and rain.",
    ),
    "winter": (
        "Icicles hung from every roof.",
        "Every breath was a little cloud.",
        "The tracks of a hare crossed the road.",
        "The brooks were silent under the ice.",
        "It smelled of smoke and snow.",
    ),
}


def trouble(fits: Fits = lambda t: True, helps: str = "") -> Callable:
    """Register a trouble that can come where `fits` says so; what `helps` makes it likelier, since it is in the bag."""

    def register(tell: Callable[[Tale], None]) -> Callable[[Tale], None]:
        TROUBLES.append((fits, set(helps.split()), tell))
        return tell

    return register


def meet_trouble(t: Tale) -> None:
    """Narrate one trouble that fits and has not come yet."""
    some = [
        (tell, 5 if helps.intersection(t.bag) else 1)
        for fits, helps, tell in TROUBLES
        if tell.__name__ not in t.met and fits(t)
    ]
    (tell,) = t.r.choices([tell for tell, _ in some], [weight for _, weight in some])
    t.met.add(tell.__name__)
    t.rest()
    sight(t)
    tell(t)
    t.pass_time(t.r.choice([0, 1]))


def sight(t: Tale) -> None:
    """Something to look at on the way, or nothing."""
    way = t.r.random()
    if way < 0.25:
        t.say(t.r.choice(SIGHTS[t.season]))
    elif way < 0.4 and t.hour < 5:
        t.put(
            seen=t.r.choice(NUMBERS[3:]) + " [storks|ducks|donkeys|chimneys|windmills|haystacks|crows|fishing"
            " boats|poplars|white stones]"
        )
        t.say("^{they} counted {seen}[| on the way|, and then {they} lost count].")
        t.fact("What did {who} count on the way?", "{seen}")
    elif way < 0.5:
        t.say(
            "^{they} [sang|hummed|whistled] to make the road shorter.",
            "The road went [up and down|in long bends|along a wall].",
        )


@trouble(lambda t: t.season != "winter", "rope")
def river(t: Tale) -> None:
    """Water without a bridge: a rope, a boat, stones or a tree."""
    t.put(water="[river|stream|brook]")
    t.say(
        "[Soon|After a while|Half way] {who} came to a~ [wide|fast|deep|cold] {water}[, and there was no bridge|. The"
        " bridge had been washed away| without a bridge]."
    )
    way = t.r.choice(["stones", "log", "boat", "boat", *["rope"] * 4 * t.has("rope")])
    if way == "rope":
        t.say(
            "[Luckily|By good luck] there was a rope in the bag. ^{they} tied it to a~ [willow|birch|old post], [held"
            " on|held it] tight and [walked|waded] through the [cold|brown|clear] water.",
            "[On the other side {they} laughed and shook with cold|It was cold but it was quickly done], and the rope"
            " stayed behind.",
        )
        t.lose("rope")
        t.fact("With what did {who} cross the {water}?", "rope")
    elif way == "boat":
        t.cast("b")
        t.put(
            price="[a song|a story|a joke|[two|three] apples|a good riddle|a smile and a shiny button|news from the village]"
        )
        t.say("On the bank sat {b}, who [had|owned] a~ [little|flat|leaky|{colour}] boat.")
        t.line("h", "[Can|Could|Will] you take {me} across[|, please]?")
        t.line("b", "[For|It costs] {price}[|, and not a penny more|, as always].")
        t.say(
            "[^{b} got {price}|That was soon agreed], and the boat [slid|glided|rocked] over the [grey|green|bright] water."
        )
        t.fact("Who had a boat?", "{b}")
        t.fact("What did {b} want for the ride?", "{price}")
    elif way == "stones":
        t.put(n="[five|six|seven|eight|nine|ten|eleven|twelve]")
        t.say(
            "There were {n} [flat|round|wet|grey] stones in the water. ^{they} jumped from one to the next[, and|, but] on"
            " the last one {h} [slipped and got wet feet|nearly fell in|lost a shoe, and caught it again|slipped and sat"
            " down in the water]."
        )
        t.fact("How many stones were in the {water}?", "{n}")
    else:
        t.say(
            "[A little|Not far] [upstream|downstream] a~ [fallen|dead|long] tree lay across the water. [Step by"
            " step|Slowly|On hands and knees], {they} [crossed it|crept over it].",
            '["Do not look down," {h} [whispered|said]|^{h} counted every step|A fish jumped below], and then it was done.',
        )
    t.record_deed("crossed the {water}")


@trouble(lambda t: t.sky in ("sunny", "cloudy") and t.season != "winter" and t.hour < 5, "umbrella blanket")
def storm(t: Tale) -> None:
    """Rain: an umbrella, or a roof until it stops."""
    t.sky = "rainy"
    t.say(
        "[Suddenly|All at once|Then] the sky [grew|turned] [dark|black], and it began to [rain|pour|thunder]."
    )
    if t.has("umbrella"):
        t.say(
            "[But there was|What luck that there was] the umbrella! ^{they} opened it and [walked on|went on], dry [as"
            " toast|as a bone].",
            "[The drops|Rain] drummed [on it like [fingers|little feet]|a song on it].",
        )
        t.record_deed("walked through the rain")
        return
    t.put(
        shelter="[a barn|a cave|an empty hut|a hollow oak|an old wagon|a ruined mill|a shed full of hay|a stable]"
    )
    t.say(
        "{who} ran[| as fast as {they} could| with wet hair|, with mud up to the knees,] and [found|reached] {shelter}.",
        "[Inside it smelled of [hay|dust|earth|apples]|In there it was dry and [quiet|warm]|A~ [goat|hen|old cat] was"
        " sleeping there already].",
    )
    if t.has("blanket"):
        t.say("The blanket from the bag was [just right|big enough] now.")
        t.fact("What kept {who} warm?", "blanket")
    t.say(
        "^{they} [listened to the rain|counted the seconds between lightning and thunder|told the storm to hurry up] until"
        " [it stopped|the clouds moved on|the last drop had fallen]."
    )
    t.pass_time()
    t.clear()
    t.fact("Where did {who} wait until the storm was over?", "{shelter}")
    t.record_deed("sat out a storm in {shelter}")


@trouble(lambda t: t.hour >= 3, "lamp blanket")
def darkness(t: Tale) -> None:
    """Night on the road: a lamp, a light ahead, or a bed of leaves."""
    t.hour = 5
    t.say("[Now|Soon|By then] it was so dark that nobody could see the [path|road].")
    if t.has("lamp"):
        t.say(
            "{h} [took|pulled] the lamp out of the bag and lit it. [A small circle|A ring] of [warm|yellow] light"
            " [walked|moved] ahead, and {they} followed it."
        )
        t.fact("What did {h} light?", "lamp")
        t.record_deed("walked through the dark with a lamp")
    elif t.r.random() < 0.5:
        t.put(
            light="[the light of a window|a long row of fireflies|the brightest star|the moon on the white stones|the glow"
            " of a fire]"
        )
        t.say(
            '[Then|At last] {h} saw {light}. ["This way!"|"There!"|"I know where {i} {am}," said {h}.]',
            "^{they} [went|walked] on, [slowly|step by step|without a word].",
        )
        t.fact("What showed the way in the dark?", "{light}")
        t.record_deed("found the way by {light}")
    else:
        t.line(
            "h",
            "[I cannot see my own [hand|feet]|It is too dark|Nobody could find the way now]. ^{i} must wait for the"
            " morning.",
        )
        t.say(
            "So {they} slept under a~ [fir|bush|hedge|rock], "
            + (
                "wrapped in the blanket."
                if t.has("blanket")
                else "[rolled up like a cat|on a bed of leaves]."
            ),
            "[At dawn|When the sun rose] a~ [robin|lark|cock|blackbird] [woke|called] {them}.",
        )
        t.hour = 0
        t.record_deed("slept under the open sky")


@trouble(lambda t: t.sky == "foggy", "whistle")
def fog(t: Tale) -> None:
    """Fog: a whistle that is answered, or a sound to follow."""
    t.say(
        "The fog grew [thicker|so thick that {h} could not see {h.his} own feet].",
        "[Left and right looked the same.|Every tree looked like the one before.]",
    )
    if t.has("whistle"):
        t.say(
            "{h} blew the whistle three times. [Somebody whistled back|Far away a shepherd whistled back], and {they}"
            " [walked|went] toward the sound."
        )
        t.fact("What did {h} blow in the fog?", "whistle")
        t.record_deed("got through the fog with a whistle")
    else:
        t.put(
            tone="[a church bell|the bell of a cow|a barking dog|the hammer of a smith|a rooster|the horn of a ship|a woman"
            " who sang]"
        )
        t.say(
            "[Then {they} heard|From far away came the sound of] {tone}, and {they} followed it [out of the white|step by"
            " step|until the fog was thin again]."
        )
        t.fact("What did {who} follow in the fog?", "{tone}")
        t.record_deed("found a way out of the fog")
    t.clear()


@trouble(helps="bread apples cheese honey")
def hunger(t: Tale) -> None:
    """Nothing to eat, or only a little: it is shared, found or given."""
    food = next((f for f in ("bread", "apples", "cheese", "honey") if t.has(f)), "")
    growl = (
        "so hungry that {h.his} stomach growled like a bear"
        if t.is_alone
        else "so hungry that their stomachs growled"
    )
    t.say(
        f"[By now|After all that walking] {{who}} {{was}} [very hungry|terribly hungry|{growl}|as hungry as a wolf]."
    )
    if food:
        t.fields["food"] = food
        t.lose(food)
    if food and t.is_alone and t.r.random() < 0.6:
        t.cast("o")
        t.put(
            gave="[a ball of wool|a tin whistle|a feather|a lucky stone|a little bell|a pair of gloves|a brass button]"
        )
        t.say(
            "{h} sat down to eat the {food}. [Then|But] {o} came by, [thin and tired|with an empty bag|who had eaten"
            " nothing all day]."
        )
        t.line("h", "[Sit down|Come], there is enough for two.")
        t.say("They shared the {food}, and [as thanks|when they had finished] {o} [gave|handed] {h} {gave}.")
        t.fact("With whom did {h} share the {food}?", "{o}")
        t.fact("What did {o} give {h} as thanks?", "{gave}")
        t.record_deed("shared the last food with {o}")
    elif food:
        t.say(
            "[Luckily {they}|What luck! ^{they}|But {they}] still had some {food} in the bag.",
            "[Nothing had ever tasted so good|In a minute all was gone|^{they} ate slowly, to have more of it].",
        )
        t.fact("What did {who} eat on the way?", "{food}")
    elif t.season in ("summer", "autumn") and t.r.random() < 0.6:
        t.put(fruit="[blackberries|hazelnuts|wild plums|small sour apples|wild pears|beechnuts]")
        t.say(
            "[Beside the path|By a wall|On a sunny slope] {they} found {fruit} and ate until [nobody could eat any more|it"
            " did not hurt any more]."
        )
        t.fact("What did {who} find to eat?", "{fruit}")
    else:
        t.cast("o")
        t.put(
            meal="[a bowl of soup|a plate of pancakes|warm bread and butter|a hot potato with salt|a big piece of cake|rice"
            " with milk|bean stew]"
        )
        t.say(
            "[At a lonely house|At the next farm] {they} knocked[| at the door]. {o} opened and [asked no questions|looked"
            " at {them} for a moment]."
        )
        t.line(
            "o",
            "[Nobody should be hungry [in this weather|at my door]|Come in, the stove is warm|I always cook too much].",
        )
        t.say(
            "There was {meal}, and [never had anything tasted better|it was gone in a minute|nobody spoke until it was"
            " gone]."
        )
        t.fact("Who gave {who} something to eat?", "{o}")
        t.fact("What did {who} get to eat?", "{meal}")


@trouble()
def riddle(t: Tale) -> None:
    """A gate that opens for an answer."""
    question, answer, guess = t.r.choice(RIDDLES)
    t.cast("k")
    t.fields |= {"answer": answer, "guess": guess, "question": question}
    t.put(
        where="[a gate|a narrow bridge|a toll house|a high wall with one small door|a tunnel|a locked fence]"
    )
    t.say(
        "[Then {they} came to|The way led to|Soon {they} stood before] {where}. {k} [sat in front of it|kept watch"
        " there|guarded it] and [did not move|yawned|put up a hand|looked {them} up and down]."
    )
    t.line(
        "k",
        "[Nobody goes through without an answer|Only those who answer may pass|First a riddle|Listen well]."
        " {question}?",
    )
    if t.r.random() < 0.5:
        t.line("h", "[Is it|Could it be] {guess}?")
        t.line("k", "[No|Wrong|Not bad, but no]. [Try again|You have one more try].")
    t.say("{h} thought [hard|for a long time|and thought][|, and walked up and down|, with closed eyes].")
    t.line(t.friend(), "[I know|I have it|Of course]! It is {answer}!")
    t.line(
        "k",
        "[Right|That is right|Correct]. [Pass, then|You may go|Nobody has known that for years].",
        bare=True,
    )
    t.fact("What was the answer to the riddle?", "{answer}")
    t.fact("Who asked a riddle?", "{k}")
    t.record_deed("solved the riddle of {k}")


@trouble()
def cart(t: Tale) -> None:
    """A cart that is stuck: help, then a ride or a gift for the bag."""
    t.cast("d")
    t.put(
        load="[cabbages|pots|straw|apples|firewood|bricks|milk cans|pumpkins|old chairs|potatoes|beehives]",
        pit="[the snow|a ditch]" if t.season == "winter" else "[the mud|the sand|a ditch|a hole]",
    )
    t.say(
        "[At a bend|In a dip of the road|Half way up a hill] a cart full of {load} was stuck in {pit}.",
        "{d} pulled and [pushed|shouted], but the [wheels|cart] did not move.",
    )
    t.line("d", "[Could you|Can you|Will you] [give me a hand|help me push]?")
    t.say(
        "[At once|Of course] {they} pushed[|, once, twice, three times]. With a~ [jolt|loud squeak|groan] the cart came"
        " free."
    )
    if t.r.random() < 0.5:
        t.line("d", "[Hop on|Climb up|Sit down on the {load}]. I [will take|can take] you a part of the way.")
        t.say("[It was|That was] [much|far] [faster|better] than walking[|, though the seat was hard].")
    else:
        t.put(gift="[rope|lamp|blanket|whistle|map]")
        t.say("[As thanks|For the help] {d} gave {them} an old {gift}.")
        t.bag.append(t.fields["gift"])
        t.fact("What did {d} give as thanks?", "an old {gift}")
    t.fact("What was on the cart?", "{load}")
    t.fact("Whose cart was stuck?", "{d}")
    t.record_deed("pushed a cart out of {pit}")


@trouble(lambda t: t.hour < 5, "bread apples cheese flute")
def angry_beast(t: Tale) -> None:
    """An animal that lets nobody pass: food, music or a trick."""
    t.put(beast="[goose|ram|bull]" if t.furry else "[goose|dog|goat|rooster|ram|swan]")
    t.say(
        "[But|Then] in the middle of the [path|lane|road] stood a~ [big|large|white|very angry] {beast}. It [would not let"
        " anybody pass|lowered its head|made a terrible noise|looked at {who} and did not like what it saw]."
    )
    food = next((f for f in ("bread", "apples", "cheese") if t.has(f)), "")
    if food:
        t.fields["food"] = food
        t.say(
            "{h} [threw it|held out] some of the {food}. [The {beast} forgot its anger at once.|While the {beast} ate,"
            " {they} [slipped|tiptoed] past.]"
        )
        t.lose(food)
        t.fact("What did the {beast} get?", "some of the {food}")
    elif t.has("flute"):
        t.put(tune="[slow|soft|merry|old] tune")
        t.say(
            "{h} took the flute and played a~ {tune}. The {beast} [listened|tilted its head], [yawned and lay down|and then"
            " it stepped aside]."
        )
        t.fact("What did {h} play for the {beast}?", "{tune}")
    else:
        t.put(
            trick="[walked backwards|sang a song|stood as still as a post|bowed and said good day|looked the other"
            " way|pretended to sleep]"
        )
        t.say(
            "{who} {trick}. [Nobody knows why, but it helped|The {beast} was so surprised that it stepped aside|That was"
            " new to the {beast}, and it let {them} go]."
        )
        t.fact("What did {who} do when the {beast} stood in the way?", "{trick}")
    t.record_deed("got past an angry {beast}")


@trouble(helps="map")
def signpost(t: Tale) -> None:
    """A crossing without a sign: a map, or somebody to ask."""
    t.put(right="[left|right]")
    t.say(
        "At [the next|a] crossing the [signpost|sign] [had fallen over|pointed at the sky|was so old that nobody could read"
        " it]."
    )
    if t.has("map"):
        t.say(
            "{h} [unfolded|opened] the old map and [turned it round twice|held it upside down first|put a finger on it]."
        )
        t.line("h", "[Look here|This is where {i} {am}], so {i} must go {right}.")
        t.fact("What helped {who} at the crossing?", "map")
    else:
        t.cast("s")
        t.say(
            "{s} was [mending a fence|picking up stones|resting|cutting grass|feeding a horse] [near by|beside the road]."
        )
        t.line(
            "h",
            "Which way is {goal}[|, please]?"
            if "goal" in t.fields
            else "Which way is the right one[|, please]?",
        )
        t.line(
            "s",
            "[Go {right}|Always {right}|Take the road on the {right}], [and then straight on|and do not turn"
            " round|past the white house|until you see the chimney].",
        )
        t.fact("Whom did {h} ask for the way?", "{s}")
    t.fact("Which way was the right one?", "{right}")


@trouble(lambda t: t.hour < 5)
def lost_pet(t: Tale) -> None:
    """A young animal that has lost its home."""
    t.put(
        young="[chick|duckling|gosling|lamb]" if t.furry else "[kitten|puppy|lamb|duckling|little goat]",
        nook="[in a thorn bush|in a ditch|behind a wall|between two rocks|in a hollow tree|under a cart]",
    )
    t.cast("p")
    t.say(
        "{h} [stopped|stood still]. There was a thin little voice {nook}. It was a~ {young}[|, wet and afraid|, no bigger"
        " than a hand]."
    )
    t.line(
        "h", "[Poor thing|You poor {young}|Do not be afraid]! [Where do you belong?|I will take you home.]"
    )
    t.say(
        "{h} [carried it|took it in both arms and went] to the [nearest|next] house. It belonged to {p}, who had looked for"
        " it [all day|since morning|everywhere]."
    )
    t.line(
        "p",
        "[Thank you|How glad I am|You have a good heart]! [Come back any time|I will not forget this|It is the"
        " smallest of all].",
    )
    t.fact("What did {h} find {nook}?", "{young}")
    t.fact("To whom did the {young} belong?", "{p}")
    t.record_deed("brought a lost {young} home")


@trouble(helps="string rope")
def torn_cloth(t: Tale) -> None:
    """Something tears, and is tied together."""
    t.put(rag="[left shoe|right shoe|bag|sleeve|coat|left boot|belt]")
    t.say("[Then|Just then|And then], with a [loud|sharp|nasty] rip, {h}'s {rag} tore.")
    fix = next((f for f in ("string", "rope") if t.has(f)), "")
    if fix:
        t.fields["fix"] = fix
        t.say(
            "[But there was {fix} in the bag|A piece of {fix} was all it took]. [Two knots|Three knots|A minute] later it"
            " held [again|better than before]."
        )
    else:
        t.put(
            fix="[a long blade of grass|a piece of bark|a hair ribbon|a strip of cloth|two thorns|a shoelace]"
        )
        t.say(
            "{h} [tied it together|mended it] with {fix}. [It looked funny|Nobody would call it pretty], but it held."
        )
    t.fact("With what did {h} mend the {rag}?", "{fix}")


@trouble(lambda t: not t.is_alone)
def fear(t: Tale) -> None:
    """One of them is afraid, the other one helps."""
    t.call("x", t.friend())
    t.put(
        over="[[past|through] [the dark wood|a field full of bulls|the empty house|the old graveyard]|over a~ [rope"
        " bridge|narrow plank|steep rock|shaky footbridge]]"
    )
    t.say("[The way led|Now they had to go] {over}. {x} stopped.")
    t.line(
        "x",
        "[I cannot do it|I am afraid|My knees are shaking]. [Go without me|Please let us turn back|Something bad will"
        " happen].",
    )
    t.line(
        "h",
        "[Give me your hand|Then we will go slowly|I am afraid too]. [We will count to [twenty|fifty|a hundred]|Look"
        " at me, not at the ground|Two who are afraid are braver than one].",
    )
    t.say(
        "[And|So] they did it, [step by step|side by side|hand in hand]. [Afterwards|When it was behind them] {x} [laughed"
        " out loud|was the proudest of all|wanted to do it again]."
    )
    t.fact("Who was afraid?", "{x}")
    t.record_deed("went {over}")


@trouble(lambda t: t.season == "winter", "rope")
def ice(t: Tale) -> None:
    """Thin ice: a rope for two, or flat on the stomach."""
    t.put(water="[lake|pond|river]")
    t.say("The {water} was frozen[| over]. The ice [creaked|cracked] when {h} put a foot on it.")
    if t.has("rope") and not t.is_alone:
        t.say(
            "They tied the rope round their [waists|middles], so that one could pull out the other, and crossed [far"
            " apart|one by one]."
        )
        t.fact("What did they tie round them?", "rope")
    else:
        t.say(
            '["Flat like a [frog|pancake]!"|But {h} remembered an old trick.]',
            "^{they} lay down and [slid|crawled] across[|, slowly, slowly|, and held {their} breath].",
        )
    t.say(
        "[On the other side|When it was over] {they} [could not stop laughing|{was} white with snow|looked back and"
        " shivered]."
    )
    t.record_deed("crossed the frozen {water}")


@trouble(lambda t: t.season == "winter" and t.sky == "snowy")
def snow(t: Tale) -> None:
    """Deep snow, and something that carries."""
    t.put(slide="[an old board|the lid of a barrel|a tin tray|a broken sledge|an old door|a washing tub]")
    t.say(
        "The snow was so deep now that {they} sank in [to the knees|up to the knees] [at every step|again and again].",
        '[By a fence|Beside the road|Under a roof] {h} saw {slide}. ["That will do," said {h}.|That gave {h} an idea.]',
        "[Soon|A moment later] {they} sat on it and slid down the hill[, faster than the wind|, and could not stop].",
    )
    t.fact("On what did {who} slide down the hill?", "{slide}")
    t.record_deed("got through the deep snow")


@trouble(lambda t: t.hour < 5)
def market(t: Tale) -> None:
    """Something for sale, but that is not why they came."""
    t.cast("m")
    t.put(
        price="[two|three|four|five|six|seven|eight|nine|ten|eleven|twelve] pennies",
        good="[a~ {colour} kite|a music box|a spinning top|a hot pie|a silk scarf|a little ship in a bottle|a wooden"
        " horse|a singing kettle]",
    )
    t.say(
        "On the way there was a market[| with a hundred stalls|, loud and full of smells]. {m} [held up|offered {them}]"
        " {good} for {price}."
    )
    t.line("m", "[Only today|So cheap, and only today|You will not find another like it]!")
    if t.r.random() < 0.5:
        t.say(
            "{h} [turned {h.his} pockets inside out|counted {h.his} coins], but there was [too little|not enough] in them."
            " [So|With a sigh] {they} walked on."
        )
    else:
        t.say(
            "{h} [looked at it for a long time|wanted it very much]. But then {h} [remembered|thought of] why {they} had"
            " come, and left it there."
        )
    t.say_maybe(
        0.5,
        '["First things first,"|"Another time,"|"Some things are only for looking at,"] {h} [said|thought].',
    )
    t.fact("How much did {m} want for {good}?", "{price}")
    t.fact("What did {m} offer?", "{good}")


@trouble(lambda t: t.hour < 5)
def swarm(t: Tale) -> None:
    """A cloud of something that flies."""
    t.put(
        swarm="[bees|wasps|hornets]" if t.season in ("summer", "spring") else "[crows|jays|magpies]",
        hive="[old tree|bush|hollow tree]",
    )
    t.say("Nobody had [seen|noticed] that the {hive} was full of {swarm}. Now it began to [hum|stir|shake].")
    t.line(t.friend(), "[Run|Down|Do not move|Stand still]!")
    t.say(
        "A whole cloud of {swarm} [came out|rose up], [but only for a minute|and then it was over|but nobody was hurt].",
        "[Only {h}'s hat was gone.|A~ {colour} scarf stayed in the branches.|Afterwards there was a lot of laughing.]",
    )
    t.fact("What came out of the {hive}?", "{swarm}")
    t.record_deed("got away from the {swarm}")
