"""Measure the shipped models on held-out text and tasks, and write the model card `assets/models/README.md`.

    python -m decodescope.training.evaluate

Losses are over windows of 1024 tokens of documents that no training saw. Bits a byte divide by the mean bytes a token of
such text, so they compare across tokenizers. Tasks are those of LabBench, answered greedily and scored by its rules.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import pairwise
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from decodescope.engine.bench.clock.contest import engine_contestant
from decodescope.engine.bench.questions.score import score
from decodescope.engine.session.load import load
from decodescope.engine.session.method import Method
from decodescope.engine.trace.query.repeats import repeated_share

from . import acceptance, data
from .data import ROOT
from .losses import token_loss
from .net import Net, count_weights
from .train import MIXTURE, MODELS, RECORDS

BENCH = ROOT / "assets" / "bench" / "labbench.jsonl"
NAMES = ("lab", "lab-draft", "lab-draft-plain")
ROLES = {"lab": "the target", "lab-draft": "its draft", "lab-draft-plain": "the draft without a teacher"}
ANSWER = 192  # tokens of an answer at most
DRAFTERS = (
    "prompt_lookup",
    "medusa",
    "hydra",
    "blockwise",
    "mlp_speculator",
    "redrafter",
    "eagle",
    "eagle2",
    "eagle3",
    "kangaroo",
)
AGAIN = ""  # instead of a drafter: how much of what was written occurs earlier in its text
# tokens of a prompt, tokens decoded after it, prompts of a kind of text
BEGINNING = 96
WRITTEN = 128
DECODED = 4
OLD = "first-"  # origins of the trainings that came before records were kept; their command lines are of an earlier script

CODE_PROMPT = '''class Stack:
    """A stack of items."""

    def __init__(self):
        self.items = []

    def push'''  # not "push(": the tokenizer has "(self" in one piece
PROMPTS = {
    "Code": CODE_PROMPT,
    "Story": "Once upon a time there was a small fox named Hugo.",
    "Chat": "<|user|>\nWrite a function that tests whether a number is prime.<|end|>\n<|assistant|>\n",
}


@torch.no_grad()
def loss(net: Net, rows: Tensor) -> Tensor:
    """float [N, T - 1]: nats of every token after the first of windows int64 [N, T], computed in float32."""
    return torch.cat([token_loss(net(part[:, :-1]), part) for part in rows.split(2)])


def losses_by_kind(net: Net, texts: dict[str, data.CorpusText], count: int) -> dict[str, tuple[float, float]]:
    """Nats a token and bits a byte by the name in the mixture, and for all text."""
    out = {}
    for name, kinds in {"all": list(texts), **data.groups(texts, MIXTURE)}.items():
        some = {k: texts[k] for k in kinds}
        nats = float(loss(net, data.windows(some, 1024, count * (2 if name == "all" else 1))).mean())
        size = sum(t.size for t in some.values()) / sum(len(t.ids) for t in some.values())
        out[name] = nats, nats / math.log(2) / size
    return out


def losses_by_position(net: Net, texts: dict[str, data.CorpusText], count: int) -> dict[str, float]:
    """Nats a token along windows of 2048 tokens: a model that uses its context gets better."""
    nats = loss(net, data.windows(texts, 2048, count)).mean(0)
    return {f"{a} to {b}": float(nats[a:b].mean()) for a, b in pairwise([0, 128, 512, 1024, 2047])}


@torch.no_grad()
def losses_by_exit(net: Net, rows: Tensor) -> list[tuple[float, float]]:
    """For every layer: nats a token if the text is read off after it, and agreement with the last layer's first choice."""
    total, same = torch.zeros(net.shape.layers), torch.zeros(net.shape.layers)
    for part in rows.split(2):
        states = net.states(part[:, :-1])[1:]
        last = net.head(states[-1]).argmax(2)
        for i, state in enumerate(states):
            logits = net.head(state)
            total[i] += token_loss(logits, part).sum()
            same[i] += (logits.argmax(2) == last).sum()
    count = rows[:, 1:].numel()
    return list(zip((total / count).tolist(), (same / count).tolist(), strict=True))


def continue_greedily(net: Net, tokenizer: Tokenizer, prompt: str, most: int) -> str:
    """The greedy continuation of a prompt up to <|end|>, at most `most` tokens."""
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    most = min(most, net.shape.context - ids.shape[1])
    written = net.write(ids, most, 0.0, stop=data.END)[0, ids.shape[1] :].tolist()
    return tokenizer.decode(
        written[: written.index(data.END)] if data.END in written else written, skip_special_tokens=False
    )


def conversation_prompt(question: dict, turn: int, answers: list[str]) -> str:
    """The conversation up to the answer of `turn`, with the answers so far."""
    said = [f"<|user|>\n{t}<|end|>\n<|assistant|>\n" for t in question["turns"][: turn + 1]]
    return "".join(a + b for a, b in zip(said, [f"{x}<|end|>\n" for x in answers] + [""], strict=True))


def task_scores(net: Net, tokenizer: Tokenizer, each: int) -> dict[str, tuple[float, int]]:
    """Category -> mean score of the first `each` questions of LabBench, 0 to 1, and how many those are."""
    questions: dict[str, list[dict]] = {}
    for line in BENCH.read_text(encoding="utf-8").splitlines():
        questions.setdefault((q := json.loads(line))["category"], []).append(q)
    out = {}
    for category, some in questions.items():
        marks = []
        step = max(1, len(some) // each)
        for q in some[::step][:each]:
            answers: list[str] = []
            for turn in range(len(q["turns"])):
                answers.append(
                    continue_greedily(net, tokenizer, conversation_prompt(q, turn, answers), ANSWER)
                )
            marks.append(
                sum(score(q["scorer"], a, b) for a, b in zip(answers, q["reference"], strict=True))
                / len(answers)
            )
        out[category] = sum(marks) / len(marks), len(marks)
    return out


def measure_drafting(
    names: list[str], texts: dict[str, data.CorpusText], count: int, sampler: str
) -> dict[tuple[str, str], float]:
    """(drafter, kind of text) -> tokens a pass of `lab` after `count` held-out beginnings of that kind.

    Drafters whose heads it lacks are left out. Those of `names` draft as models. (AGAIN, kind) -> the mean share of 4-grams of
    the written text that its text had before. Counted in whole decodings, not timed.
    """
    lab, found = load(MODELS / "lab", "float32", "cpu"), {}
    methods = {name: Method.from_names({"drafter": name, "sampler": sampler}) for name in DRAFTERS}
    fields = {
        name: engine_contestant(name, lab, x, WRITTEN)
        for name, x in methods.items()
        if x.drafter.refuse(x, lab.spec) is None
    }
    for name in names:
        fields[name] = engine_contestant(
            name,
            lab,
            Method.from_names({"drafter": "draft_model", "sampler": sampler}),
            WRITTEN,
            models={"draft": load(MODELS / name, "float32", "cpu")},
        )
    for group, kinds in data.groups(texts, MIXTURE).items():
        prompts, again = data.windows({k: texts[k] for k in kinds}, BEGINNING, count).tolist(), []
        for name, one in fields.items():
            made = [one.write(prompt) for prompt in prompts]
            found[name, group] = sum(len(w.tokens) for w in made) / sum(w.passes for w in made)
            again += [repeated_share(w.tokens) for w in made]
        found[AGAIN, group] = sum(again) / len(again)
    return found


def measure(windows: int, questions: int) -> dict:
    """All numbers and samples of the card. Models that are not there are left out."""
    names = [n for n in NAMES if (MODELS / n / "model.safetensors").exists()]
    tokenizer, texts = Tokenizer.from_file(str(data.TOKENIZER)), data.load("valid")
    nets = {n: Net.from_folder(MODELS / n).eval() for n in names}
    found: dict = {"size": {n: count_weights(net) for n, net in nets.items()}, "fit": {}}
    for n, net in nets.items():
        print(f"{n}: losses, tasks and samples", flush=True)
        found.setdefault("loss", {})[n] = losses_by_kind(net, texts, windows)
        found.setdefault("position", {})[n] = losses_by_position(net, texts, windows)
        found.setdefault("tasks", {})[n] = task_scores(net, tokenizer, questions)
        found.setdefault("samples", {})[n] = {
            k: p + continue_greedily(net, tokenizer, p, 120) for k, p in PROMPTS.items()
        }
        if n != "lab":
            for group, kinds in data.groups(texts, MIXTURE).items():
                rows = data.windows({k: texts[k] for k in kinds}, 257, windows)
                found["fit"][n, group] = acceptance.measure(nets["lab"], net, rows)
    found["exits"] = losses_by_exit(nets["lab"], data.windows(texts, 512, 2 * windows))
    print("drafters", flush=True)
    drafts = [n for n in names if n != "lab"]
    found["drafting"] = {
        x: measure_drafting(drafts, texts, min(windows, DECODED), x) for x in ("greedy", "temperature")
    }
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n"


def began_before_records(name: str) -> bool:
    """Whether a model's first training came before records were kept."""
    return json.loads((RECORDS / f"{name}.json").read_text())[0]["origin"].startswith(OLD)


def training_table(name: str) -> str:
    """How a model was trained, from its record: a row for every training, commands, and the loss on the way, of each
    kind from when it was read."""
    runs = json.loads((RECORDS / f"{name}.json").read_text())
    rows = [
        [
            str(i + 1),
            f"{r['tokens'] / 1e6:.2f} M",
            f"{r['steps']:,}",
            f"{r['minutes']:.0f}",
            r["device"],
            ", ".join(f"{k} {v:.0%}" for k, v in r["mixture"].items()),
            ", ".join(
                f"{k} {v}"
                for k, v in r["objective"].items()
                if v and (k != "divergence" or r["objective"]["distil"])
            ),
        ]
        for i, r in enumerate(runs)
    ]
    parts = [table(["training", "tokens", "steps", "minutes", "device", "text", "objective"], rows)]
    earlier = {True: "  # an earlier script", False: ""}
    commands = [
        f"python -m decodescope.training.train {r['command']}{earlier[r['origin'].startswith(OLD)]}"
        for r in runs
    ]
    parts.append("```\n" + "\n".join(commands) + "\n```\n")
    old = " Training 1 read and measured an earlier corpus." * began_before_records(name)
    parts.append(f"Held-out loss on the way, nats a token.{old}\n")
    for i, r in enumerate(runs):
        kinds = list(r["held_out"][-1][1])
        some = r["held_out"][:: max(1, len(r["held_out"]) // 8)]
        some = some if some[-1] == r["held_out"][-1] else [*some, r["held_out"][-1]]
        parts.append(
            table(
                [f"training {i + 1}", *(f"{at / 1e6:.2f} M" for at, _ in some)],
                [[k, *(f"{losses[k]:.3f}" if k in losses else "" for _, losses in some)] for k in kinds],
            )
        )
    return "\n".join(parts)


def drafting_table(found: dict[tuple[str, str], float]) -> str:
    """The table of what `measure_drafting` found."""
    groups = list(dict.fromkeys(group for _, group in found))
    drafters = dict.fromkeys(name for name, _ in found if name != AGAIN)
    rows = [[f"`{name}`", *(f"{found[name, group]:.2f}" for group in groups)] for name in drafters]
    return table(
        ["drafter", *groups],
        [*rows, ["4-grams said again", *(f"{found[AGAIN, group]:.0%}" for group in groups)]],
    )


def card(found: dict) -> str:
    """The model card as Markdown."""
    names = list(found["size"])
    out = [INTRODUCTION]
    trained = {n: sum(r["tokens"] for r in json.loads((RECORDS / f"{n}.json").read_text())) for n in names}
    out.append(
        table(
            ["", "parameters", "training tokens", "held-out loss", "bits a byte"],
            [
                [
                    f"`{n}`",
                    f"{found['size'][n]:,}",
                    f"{trained[n] / 1e6:.2f} M",
                    f"{found['loss'][n]['all'][0]:.3f}",
                    f"{found['loss'][n]['all'][1]:.3f}",
                ]
                for n in names
            ],
        )
    )
    out.append("## Held-out loss by kind of text\n\nNats a token (bits a byte), windows of 1024 tokens.\n")
    kinds = list(found["loss"]["lab"])
    out.append(
        table(
            ["", *kinds],
            [[f"`{n}`", *(f"{a:.3f} ({b:.3f})" for a, b in found["loss"][n].values())] for n in names],
        )
    )
    out.append("By position in windows of 2048 tokens:\n")
    out.append(
        table(
            ["", *found["position"]["lab"]],
            [[f"`{n}`", *(f"{x:.3f}" for x in found["position"][n].values())] for n in names],
        )
    )
    out.append(TASKS)
    out.append(
        table(
            ["kind", "questions", *(f"`{n}`" for n in names)],
            [
                [k, str(count), *(f"{found['tasks'][n][k][0]:.2f}" for n in names)]
                for k, (_, count) in found["tasks"]["lab"].items()
            ],
        )
    )
    out.append(EXITS)
    out.append(
        table(
            ["after layer", *(str(i + 1) for i in range(len(found["exits"])))],
            [
                ["nats a token", *(f"{a:.3f}" for a, _ in found["exits"])],
                ["same first choice as the last", *(f"{b:.1%}" for _, b in found["exits"])],
            ],
        )
    )
    out.append(FIT)
    out.append(
        table(
            ["draft", "text", "overlap", "same first choice", "tau greedy", "tau T=1"],
            [
                [
                    f"`{n}`",
                    group,
                    f"{m['overlap']:.3f}",
                    f"{m['same']:.1%}",
                    f"{m['tau greedy']:.2f}",
                    f"{m['tau T=1']:.2f}",
                ]
                for (n, group), m in found["fit"].items()
            ],
        )
    )
    if {"lab-draft", "lab-draft-plain"} <= set(names) and began_before_records("lab-draft"):
        out.append(UNLIKE)
    out += [
        DRAFTING,
        drafting_table(found["drafting"]["greedy"]),
        DRAWN,
        drafting_table(found["drafting"]["temperature"]),
    ]
    if DIVERGENCES.exists():
        out.append(f"### The choice of the divergence\n\n{DIVERGENCES.read_text()}")
    if RECIPE.exists():
        out.append(f"### The choice of text and rate\n\n{RECIPE.read_text()}")
    for n in names:
        out.append(f"## {n}\n\n`{n}` is {ROLES[n]}.\n\n{training_table(n)}")
        out.append(
            "Greedy samples, at most 120 tokens, the first ones drawn. The prompt is part of the text.\n"
        )
        out += [f"{kind}:\n\n~~~~text\n{text.rstrip()}\n~~~~\n" for kind, text in found["samples"][n].items()]
    out.append(weaknesses(found))
    return "\n".join(out).rstrip() + "\n"


def weaknesses(found: dict) -> str:
    """What the models cannot do, with the numbers that show it."""
    scores = sorted((mark, kind) for kind, (mark, _) in found["tasks"]["lab"].items())
    low = ", ".join(f"{kind} ({mark:.2f})" for mark, kind in scores if mark < 0.5) or "none of them"
    return WEAKNESSES.replace("LOW", low)


# measured once, by the commands in these files
DIVERGENCES, RECIPE = RECORDS / "divergences.md", RECORDS / "recipe.md"

INTRODUCTION = """\
# The models that come with DecodeScope

Small Llama-shaped models that were trained here, from nothing, on text that every machine with the project has installed
and on text made by our own rules. They are for watching decoding methods at work without a network. They are no
assistants.

All share one tokenizer: byte-level BPE, 4096 entries, each digit a token of its own, no token added at the start. It
is final; ids 0 to 13 are `<|end|> <|pad|> <|user|> <|assistant|> <|system|> <|mask|>` and eight reserved ones, ids 14
to 269 the 256 bytes. The weights are stored in bfloat16, the tied embedding once. What they read, by source, version and
licence, is listed in [CORPUS.md](CORPUS.md). This page is written by `python -m decodescope.training.evaluate`.

`lab-mdm`, which fills in masks and writes in no direction, has a card of its own: [MDM.md](MDM.md).
So has `lab-recall`, which looks things up: [RECALL.md](RECALL.md). So have the models of pictures: [DIGITS.md](DIGITS.md).
"""

TASKS = """\
## Tasks

LabBench, the questions of `assets/bench`, answered greedily; mean score, 0 to 1, by the rule of each kind. No question's
content is in the training text.
"""

EXITS = """\
## Reading off early

`lab` alone: the next token read off after every layer, through the last norm and the unembedding.
"""

FIT = """\
## Drafts and their target

Overlap is the mean of the sum over tokens of min(p, q), the chance that one drafted token is accepted at temperature 1;
it and the share of positions with the same first choice are of held-out text. Tau is the number of tokens a pass of the
target gives with five drafted ones, on text that the target wrote after held-out beginnings.
"""

UNLIKE = """\
`lab-draft` and `lab-draft-plain` saw as many tokens, and the last 4 M alike. The 2.9 M before were not the same: 2 M of
`lab-draft` were of an earlier corpus without tasks, and it learnt them from earlier weights of `lab`.
"""

DRAFTING = """\
## Drafters side by side

Tokens that a pass of `lab` gives, greedily, by kind of text: 128 tokens after each of a few held-out beginnings, every
drafter at its own defaults. Counted in decodings, not timed: what a draft costs is not in it, and trees check more rows in a
pass than chains. The last drafters are draft models. The last row is the share of what was written whose four tokens the text
had before: where it is high, the text goes round, and following it is no art.
"""

DRAWN = """\
The same drawn at temperature 1, where no text goes round:
"""

WEAKNESSES = """\
## Known weaknesses

- They are small and undertrained. Their Python has the looks of Python for some lines; names, calls and logic are wrong,
  and greedy code falls into loops.
- Greedily a story may give two people one name ("Maria and Maria had been friends"), and at temperature 1 it may break off
  for a line of a drill ("Tell me the pass key.").
- Below half of the points in the tasks stays `lab` in: LOW.
- Stories, talks and tasks come from our own rules. The models know those plots, names and forms and hardly any other
  English; asked anything else, the answer has the form of an answer and not its matter. Facts are not to be trusted.
- What a draft gains is highest on text that leaves little to guess. Greedy code and documentation fall into loops, which
  EAGLE and prompt lookup follow: their figures there say little of other text.
- Python is the only programming language, English the only tongue. Other scripts come out as bytes without sense.
"""


def main() -> None:
    """Measure and write the card."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--windows", type=int, default=12, help="of each kind of text")
    parser.add_argument("--questions", type=int, default=24, help="of each kind of task")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=MODELS / "README.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.write_text(card(measure(args.windows, args.questions)), encoding="utf-8")


if __name__ == "__main__":
    main()
