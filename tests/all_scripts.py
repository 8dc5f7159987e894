"""Seeded texts of all scripts, with digits, spaces, code, emoji and combining marks: what tokenizers read differently."""

from __future__ import annotations

import random
import unicodedata

# first and last character of blocks of letters, digits and signs
BLOCKS = (
    "20-7e a0-17f 180-24f 250-2af 370-3ff 400-52f 531-58f 591-5f4 600-6ff 700-74f 780-7b1 7c0-7fa 900-97f 980-9fe a01-a76 "
    "a81-aff b01-b77 b82-bfa c00-c7f c80-cf2 d00-d7f d81-df4 e01-e5b e81-edf f00-fda 1000-109f 10a0-10ff 1100-11ff "
    "1200-139f 13a0-13fd 1400-167f 1780-17f9 1800-18aa 1e00-1fff 2000-206f 2070-209c 20a0-20c0 2100-218b 2190-23ff "
    "2460-27bf 2c00-2dff 3000-303f 3041-30ff 3105-318e 3400-4dbf 4e00-9fff a000-a4c6 a500-a6f7 a720-a7bf a960-a97c "
    "a980-a9df ac00-d7a3 f900-faff fb00-fb4f fe30-fe6b ff01-ffdc 10400-1044f 10c80-10cff 118a0-118ff 1d400-1d7ff "
    "1e900-1e95f 1f300-1f6ff 1f900-1f9ff 20000-2a6df 2a700-2b734"
)
WORDS = (
    "the a of token model Speculative decoding HelloWorld camelCase don't I'M we've they'LL it's he'd 'tis isn't X's JSON "
    "HTTPServer iPhone \u01c5ungla \ufb01n na\u00efve cafe\u0301 <tool> <|im_end|> </s> <unk> <0x0A>"
)
CODE = (
    "def f(x):\n    return x[0] + 1\n",
    'for (int i=0; i<10; ++i) {\n\tprintf("%d\\n", i);\n}',
    '<div class="a">&nbsp;</div>',
    '{"a": [1, 2.5e-3, null]}',
    "x += 1; // done",
    "SELECT * FROM t WHERE a='b';",
    "a->b::c<T>&&!d",
    "\\frac{1}{2}$x^2$",
    "---\n***\n===",
    "https://example.com/a_b?c=d&e=f#g",
    "<sentinel:12>",
    "IMGIMGABZ",
)
SPACES = (
    *([" "] * 12),
    *(
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "\t\t",
        " \n",
        "\n ",
        "\u00a0",
        "\u3000",
        "\u2009",
        "\u2028",
        "\u0085",
    ),
    *(" \r\n \n", "        ", "", "", ""),
)
EMOJI = (
    "\U0001f600",
    "\U0001f469\u200d\U0001f4bb",
    "\U0001f1e9\U0001f1ea",
    "\U0001f44d\U0001f3fd",
    "\u2764\ufe0f",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "1\ufe0f\u20e3",
)
MARKS = "\u0301\u0308\u20dd\u0e31\u093f\u05b0\u064e\u200d\u200b\ufe0f\u0316"
ZEROS = "00000\u0660\u0966\u0e50\uff10"  # the digits of a script follow its zero
NUMBERS = (
    "3.14",
    "1,234,567.89",
    "12:30",
    "\u00b2\u00b3",
    "\u00bd",
    "\u2167",
    "\u2460\u2461",
    "x2y",
    "4th",
    "v1.2.3",
)
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u2026\u3002\uff0c\u3001\uff01\uff1f\u300c\u300d\u2014\u201c\u201d\u2019"
CONTROLS = "\x00\x01\x07\x1b\x7f\x80\x9f\xad\ufeff\ufffd\ue000\u2060\U0010ffff"


def generate_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of up to fourteen words."""
    rng = random.Random(seed)
    lengths = (rng.randint(1, 14) for _ in range(count))
    return ["".join(_word(rng) + rng.choice(SPACES) for _ in range(n)) for n in lengths]


def _word(rng: random.Random) -> str:
    """A word, a number, code, signs, or letters of one script."""
    kind = rng.random()
    digits = [chr(ord(rng.choice(ZEROS)) + rng.randrange(10))] + [str(rng.randrange(10)) for _ in range(8)]
    choices = (
        (0.22, lambda: rng.choice(WORDS.split())),
        (0.30, lambda: "".join(digits[: rng.randint(1, 9)])),
        (0.34, lambda: rng.choice(NUMBERS)),
        (0.40, lambda: "".join(rng.choice(SIGNS) for _ in range(rng.randint(1, 5)))),
        (0.44, lambda: rng.choice(CODE)),
        (0.49, lambda: rng.choice(EMOJI)),
        (0.52, lambda: rng.choice(CONTROLS)),
        (1.0, lambda: _letters(rng)),
    )
    return next(make for limit, make in choices if kind < limit)()


def _letters(rng: random.Random) -> str:
    """Characters of one block, some with a mark, some with an English ending."""
    first, last = (int(x, 16) for x in rng.choice(BLOCKS.split()).split("-"))
    text = ""
    for _ in range(rng.randint(1, 8)):
        letter = chr(rng.randint(first, last))
        text += "x" if unicodedata.category(letter) in ("Cn", "Cs", "Co") else letter
        text += rng.choice(MARKS) if rng.random() < 0.12 else ""
    return text + (rng.choice(["'s", "'S", "'re", "'LL", "'\u017f", "'x"]) if rng.random() < 0.1 else "")
