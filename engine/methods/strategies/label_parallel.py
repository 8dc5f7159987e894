"""Label-parallel decoding: for each label, first the number of mentions is written, then all mentions in parallel."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.shared.text_threads import (
    THREADS,
    ThreadedStrategy,
    ThreadState,
    ThreadWriter,
)
from decodescope.engine.decoding.values.tops import token_probabilities
from decodescope.engine.trace.details.declarations import DetailColumn, Outcome, Sentence, TallyForm
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.values.mentions import mention_outcomes, parse_count, parse_mention

from .shared.strategy_text import check_room, fork_threads, ids_of

LABEL, INDEX = "{label}", "{index}"
DIGITS = 8  # tokens of a count, at most
NAMED = "the request of label"
LONGEST = 4000  # maximum characters of all labels, and of a request
_OPEN = re.compile(r"\s*\d{0,4}")  # a count that may still get digits

TITLE = "Mentions by label"
NUMBER = "ln p"
BAR = "that of another label"
LABELS = TallyForm(
    title=TITLE,
    number=NUMBER,
    bar=BAR,
    says=[Sentence("{kept} of {mentions} mentions stand")],
    row=[Sentence("{name}")],
    outcomes={"counted": Outcome(True, "", [Sentence("counted {count}")])},
    columns=[
        DetailColumn("name", "text", "summary"),
        DetailColumn("thread", "number", "summary"),
        DetailColumn("count", "number", "summary"),
        DetailColumn("outcome", "text", "summary"),
    ],
    values=[DetailColumn("mentions", "number", "summary"), DetailColumn("kept", "number", "summary")],
    check="labels",
)
KEPT, DROPPED = [Sentence("mention {index}")], [Sentence("mention {index}"), Sentence("dropped")]
MENTIONS = TallyForm(
    title=TITLE,
    number=NUMBER,
    bar=BAR,
    value="own",
    row=[Sentence("{name}: {text}")],
    outcomes={
        "only": Outcome(True, "", KEPT),
        "likelier": Outcome(True, "other", KEPT),
        "first": Outcome(True, "", KEPT),
        "later": Outcome(False, "", DROPPED),
        "unlikelier": Outcome(False, "other", DROPPED),
    },
    lines=[
        Sentence("Each label's mentions were counted first, and then written each by itself."),
        Sentence(
            "Of labels with the same mention the one whose tokens have the highest probability keeps it."
        ),
    ],
    columns=[
        DetailColumn("label", "number", "summary"),
        DetailColumn("name", "text", "summary"),
        DetailColumn("index", "number", "summary"),
        DetailColumn("thread", "number", "summary"),
        DetailColumn("text", "text", "summary"),
        DetailColumn("p", "numbers", "summary"),
        DetailColumn("logp", "number", "summary"),
        DetailColumn("own", "number", "summary"),
        DetailColumn("other", "number", "summary"),
        DetailColumn("outcome", "text", "summary"),
    ],
    check="labels",
)


@dataclass
class _LabelRun:
    """The state of a run.

    names, counting, counts: per label, its name, its count's thread, and the text of that thread;  mentions: by thread;  p:
    probabilities of the tokens of each mention;  logits: of the last pass
    """

    writing: ThreadWriter
    names: list[str] = field(default_factory=list)
    counting: list[ThreadState] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    mentions: list[tuple[int, int, ThreadState]] = field(default_factory=list)
    p: dict[int, list[float]] = field(default_factory=dict)
    logits: Tensor | None = None


@component
class LabelParallel(ThreadedStrategy):
    """Find the mentions of each label in a text.

    For all `labels` at once, `count_template` is appended to the prompt, and the model writes the number of mentions. For each
    label and index at once, `mention_template` is appended to that count, and the model writes this mention. Prompt and count
    are held once, and a pass writes one token of every thread. So there are as many passes as the longest count and mention of
    a label have tokens, and the order of the labels changes nothing. If two labels claim the same text, the label that gives
    its tokens the higher probability keeps it. The tally `mentions` records which mentions are kept; the run's text is
    everything that the threads wrote, in order. Without labels it is plain decoding. It is also plain decoding for a model
    without a tokenizer, behind the ids in the first label's request.

    Mentions do not see each other, so the answer differs from that of sequential decoding. The model must be trained on counts
    and mentions. Differences from the authors' code: mentions of a label begin when its own count is read, not when the last
    one is. Their forms repeat text and label; here the entries of prompt and count are reused. `max_mentions` bounds a count.
    """

    title = "PaDeLLM-NER: label-parallel decoding"
    source = "Lu et al. 2024, arXiv:2402.04838; GeorgeLuImmortal/PaDeLLM_NER, infer/padellm_singlegpu_eng.py, eval/dedu.py"
    uses = frozenset({"prompt_compression", "sampler"})
    lossless = False
    changes = "mentions are written without seeing each other"
    details: ClassVar = {"threads": THREADS, "labels": LABELS, "mentions": MENTIONS}

    labels: str = param(
        "", lines=True, most=LONGEST, help="labels to look for, one per line; empty: plain decoding"
    )
    count_template: str = param(
        f"\n\nLabel: {LABEL}\nCount:",
        lines=True, most=LONGEST, help="text put after the prompt to get a label's count; {label} is filled in",
    )  # fmt: skip
    mention_template: str = param(
        f"\nMention {INDEX}:",
        lines=True, most=LONGEST, help="text put after a count to get one mention; {index} is filled in",
    )  # fmt: skip
    max_mentions: int = param(
        8, low=1, high=32, unit="mentions", help="maximum number of mentions of a label"
    )
    max_mention_tokens: int = param(16, low=1, high=256, unit="tokens", help="maximum length of a mention")

    @property
    def names(self) -> list[str]:
        """The labels, each once."""
        return [x for x in dict.fromkeys(line.strip() for line in self.labels.splitlines()) if x]

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if LABEL not in self.count_template or INDEX not in self.mention_template:
            same = "label_parallel.count_template and mention_template are the same for all"
            return f"{same}: put {LABEL} into the one, {INDEX} into the other."
        return None

    def begin_threads(self, s: State) -> None:
        """Read the requests for the counts, and begin the counts."""
        s.target.set_needs(Needs())
        run = s.scratch = _LabelRun(ThreadWriter.start(s))
        prompt = run.writing.branches.alive[0]
        asked = [self.count_template.replace(LABEL, x) for x in self.names]
        if not asked or s.encode is None or s.stop.pieces is None:
            given = ids_of(s, asked[0]) if asked else []
            prompt.tokens += given
            check_room(s, len(prompt.tokens), "a label's request")
            run.writing.branches.read()
            run.writing.begin(s, prompt, given=len(given))
            return
        run.names = self.names[: run.writing.budget]
        run.counting = fork_threads(
            s, run.writing, [s.encode(x) for x in asked], [DIGITS] * len(asked), NAMED
        )

    def step(self, s: State) -> Move:
        run: _LabelRun = s.scratch
        if not run.counting:
            return run.writing.write_round(s)

        def law(logits: Tensor, writing: list[ThreadState]) -> Tensor:
            run.logits = logits
            return logits

        move = run.writing.write_round(s, lambda wrote: self._begin_mentions(s, run, wrote), law)
        if not run.writing.alive:
            move.details = [*(move.details or ()), *self._mention_tallies(s, run)]
        return move

    def _begin_mentions(self, s: State, run: _LabelRun, wrote: list[ThreadState]) -> None:
        """Keep the probabilities of mentions, and begin those of counts that have been read."""
        assert run.logits is not None and s.stop.pieces is not None
        for thread, p in zip(
            wrote, token_probabilities(run.logits, [x.tokens[-1] for x in wrote]), strict=True
        ):
            run.p.setdefault(thread.strand.number, []).append(p)
        for label, thread in enumerate(run.counting):
            text = _decode_text(s, thread.tokens)
            going = thread.strand.why is None and _OPEN.fullmatch(text) is not None
            if label in run.counts or thread not in wrote or going:
                continue
            run.counts[label] = parse_count(text) or 0
            thread.end("outline")
            same = parse_count(_decode_text(s, thread.tokens[:-1])) == run.counts[label]
            for index in range(1, min(run.counts[label], self.max_mentions) + 1):
                self._begin_mention(s, run, label, index, thread, len(thread.tokens) - same)

    def _begin_mention(
        self, s: State, run: _LabelRun, label: int, index: int, count: ThreadState, at: int
    ) -> None:
        """Begin a mention behind the first `at` tokens of a count, if there is room for it."""
        assert s.encode is not None
        request = s.encode(self.mention_template.replace(INDEX, str(index)))
        if request and len(count.branch.tokens) + len(request) < s.limit:
            run.mentions.append(
                (label, index, run.writing.fork(s, count, at, request, self.max_mention_tokens))
            )

    def _mention_tallies(self, s: State, run: _LabelRun) -> list[TallyDetail]:
        """The result after all threads have ended: the labels, and their mentions."""
        columns = ("label", "name", "index", "thread", "text", "p", "logp")
        mentions: dict[str, list[Any]] = {name: [] for name in columns}
        for label, index, thread in sorted(run.mentions, key=lambda x: x[:2]):
            stopped = thread.strand.why == "stop_token" and thread.tokens[-1] in s.stop.tokens
            text = parse_mention(_decode_text(s, thread.tokens[: len(thread.tokens) - stopped]))
            number, p = thread.strand.number, run.p.get(thread.strand.number, [])
            row = (label, run.names[label], index, number, text, p, sum(map(math.log, p)))
            for name, entry in zip(columns, row, strict=True):
                mentions[name].append(entry)
        outcomes, own, other = mention_outcomes(mentions["label"], mentions["text"], mentions["logp"])
        kept = sum(MENTIONS.outcomes[word].holds for word in outcomes)
        labels: dict[str, list[Any]] = {
            "name": run.names,
            "thread": [x.strand.number for x in run.counting],
            "count": [run.counts.get(label, 0) for label in range(len(run.names))],
            "outcome": ["counted"] * len(run.names),
        }
        return [
            TallyDetail("labels", labels, {"mentions": len(outcomes), "kept": kept}),
            TallyDetail("mentions", mentions | {"own": own, "other": other, "outcome": outcomes}),
        ]


def _decode_text(s: State, tokens: list[int]) -> str:
    assert s.stop.pieces is not None
    return b"".join(map(s.stop.pieces, tokens)).decode("utf-8", "replace")
