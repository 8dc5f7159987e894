"""Encode once: a document is read once, and the answers to several questions are written in parallel."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.shared.text_threads import ThreadedStrategy, ThreadWriter

from .shared.strategy_text import fork_threads

ASKED = "{question}"
LONGEST = 20_000  # characters of all questions


@component
class EncodeOnce(ThreadedStrategy):
    """Answer several questions on one document.

    The prompt is the document, and each line of `questions` is appended to it in the form of `question_template`. Answer i is
    the text of a separate run with the document and that question as the prompt, as many tokens, and the seed s + i. The run's
    text is all answers, one after the other. Each gets an equal part of the tokens that may be written. Without questions it is
    plain decoding of the prompt.

    Keys and values of the document are held once and read once. All questions are read in one pass (a prompt's chunk is 512
    rows). Each later pass writes one token of every answer, so the longest answer decides the number of passes, not their sum.
    An answer that has ended leaves the pass, and its entries are freed.

    Difference from the paper: its decoder attends to an encoder's output, which no prompt changes. So it trains an
    encoder-decoder with the prompt in its decoder. In a decoder-only model, a document before the questions cannot see them
    either. So its entries are shared unchanged and no answer changes. Questions before the document would share nothing.
    """

    title = "Encode once, decode in parallel"
    source = "Lu et al. 2024, arXiv:2403.13112; boru-roylu/encode-once-and-decode-in-parallel"
    uses = frozenset({"prompt_compression", "sampler"})

    questions: str = param(
        "", lines=True, most=LONGEST, help="questions about the prompt, one per line; empty: plain decoding"
    )
    question_template: str = param(
        f"\nQuestion: {ASKED}\nAnswer:",
        lines=True,
        help="text put after the prompt for each question; {question} is filled in",
    )

    @property
    def question_texts(self) -> list[str]:
        """The questions in the form in which they follow the document."""
        lines = (line.strip() for line in self.questions.splitlines())
        return [self.question_template.replace(ASKED, line) for line in lines if line]

    @property
    def reads_text(self) -> bool:
        return bool(self.question_texts)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if ASKED not in self.question_template:
            lacks = (
                "encode_once.question_template does not say where a question goes, so all would be the same"
            )
            return f"{lacks}: put {ASKED} into it."
        return None

    def begin_threads(self, s: State) -> None:
        """Read the questions, and begin their answers."""
        s.target.set_needs(Needs())
        writing = s.scratch = ThreadWriter.start(s)
        document = writing.branches.alive[0]
        asked = [] if s.encode is None else list(map(s.encode, self.question_texts))
        if not asked:
            writing.begin(s, document)
            return
        share, more = divmod(writing.budget, len(asked))
        fork_threads(s, writing, asked, [max(1, share + (i < more)) for i in range(len(asked))], "question")

    def step(self, s: State) -> Move:
        writing: ThreadWriter = s.scratch
        return writing.write_round(s)
