"""Preset prompts: the prompts that presets are shown on, if they differ from the page's first prompt.
Models write sensibly on them. The effects of method and model can only be told apart where the model knows the text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .run_service import RunChoice

MOST = 0.25  # the share of a text's 4-grams that may be repeated, after a preset's prompt and in an example


@dataclass(frozen=True)
class PresetPrompt:
    """A prompt. chat: whether it is put as a user's turn."""

    prompt: str
    chat: bool = True


RENAMED = PresetPrompt(
    "Write this again with Rufus instead of Kurt.\n"
    'Kurt went to the beach with a pink wheel. "Yes," said Kurt. '
    "There Kurt met Julia, who had a box. Julia and Kurt ate grapes."
)
RECORD = PresetPrompt(
    '{"id": 507, "name": "Bertha", "city": "Toronto", "tags": ["silver"], "active": true}\nRepeat this.'
)
ABOUT, SUM = PresetPrompt("Tell me a story about Bertha from Toronto."), PresetPrompt("What is 4 times 8?")
NESTED = PresetPrompt(
    "Write as an expression: the product of the difference of the sum of 14 and 2 and the product of 5 and 3 and "
    "the sum of the sum of 7 and 15 and the difference of 11 and 9"
)
SHUFFLED = PresetPrompt("shuffle: Ada Ben Clara Finn Hugo ->", chat=False)
DIGIT = PresetPrompt("3", chat=False)
NEEDLE = PresetPrompt(  # the question of the examples `needle-kept` and `needle-lost`
    "There once was a cheerful girl named Ruby. Ruby and Will had been friends since the first day of school. On "
    "the last day of the holidays there was to be a dancing contest in the village. The prize was a book with "
    "empty pages. The secret number is 87527. Ruby wanted to win it for once, but Gabriel had won three times. "
    'Jakob the shepherd gave Ruby some advice. "You have to practise," said Jakob. So Ruby practised for twenty '
    "days, in the rain too. Then the day came. Flags hung from the windows, and grey clouds covered the hills. At "
    "first all went well. Then the music stopped! Gabriel saw it. Another would have gone on, but Gabriel came "
    "over and helped."
    "\n\nWhat is the secret number?"
)
# preset -> its prompt. A preset that compresses a cache or shortens a prompt needs a prompt that has something to lose. If
# only a quarter of it stays, `lab` writes of other things, or loops: such presets keep the page's story
OWN: dict[str, PresetPrompt] = {
    **dict.fromkeys(("expected", "duo", "quest", "kivi", "gear", "minicache"), RENAMED),
    **dict.fromkeys(("d2o", "gemfilter", "specpc", "short_prompt", "rapid"), RENAMED),
    **dict.fromkeys(("needle_kept", "needle_lost"), NEEDLE),
    **dict.fromkeys(("lookup", "recycling"), RECORD),
    **dict.fromkeys(("grammar", "aligned"), ABOUT),
    **dict.fromkeys(("three_answers", "consensus"), SUM),
    **dict.fromkeys(("canvas", "canvas_schedule", "canvas_at_once"), SHUFFLED),
    "planned": NESTED,
    "picture": DIGIT,
}


def apply_preset_prompt(choice: RunChoice, name: str, begin: RunChoice) -> RunChoice:
    """The settings with the prompt that a preset is shown on.
    It replaces a prompt that the page itself put there: the first one, from `begin`, or another preset's. A prompt that a
    visitor wrote stays."""
    if choice.prompt not in {"", begin.prompt, *(x.prompt for x in OWN.values())}:
        return choice
    own = OWN[name] if name in OWN else PresetPrompt(begin.prompt, begin.chat)
    return replace(choice, prompt=own.prompt, chat=own.chat, prompt_kind="text")
