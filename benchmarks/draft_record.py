"""What it costs to record the draft's own distributions, as a share of a step: `python benchmarks/draft_record.py`.

Decodes with the level "decisions" and times, in each step, the work that `Step.draft_tops` takes (`draft_tops_record`; while
the draft is made, a few references are kept). The share is the median over steps, of the time that a step's record has. Prints
a row for each pair.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import torch

from decodescope.engine import Method, Session
from decodescope.engine.decoding.record import recorder
from decodescope.engine.session.load import load

PROMPT = "Once upon a time there was a girl who had a red ball. She went to the park with"
# target, draft, drafter and its knobs; empty: that model is asked for by --model
PAIRS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("lab", "lab-draft", "draft_model", {"max_draft_tokens": 4}),
    ("lab", "", "eagle3", {}),
    ("lab", "", "medusa", {}),
)


def measure_share(target: Any, models: dict[str, Any], method: Method, tokens: int) -> tuple[float, float]:
    """Medians over the steps that record a draft: the record's time in µs, and its share of the step's time."""
    took: list[float] = []
    real = recorder.draft_tops_record

    def timed(*given: Any) -> Any:
        if target.decoder.device.type == "cuda":
            torch.cuda.synchronize()  # what was asked before is not its work
        began = time.perf_counter()
        record = real(*given)
        if record is not None:
            took.append((time.perf_counter() - began) * 1e6)
        return record

    setattr(recorder, "draft_tops_record", timed)  # noqa: B010
    try:
        ids = target.tokenizer.encode(PROMPT)
        session = Session(
            target, method, ids, models=models, max_new_tokens=tokens, level="decisions", stop_tokens=()
        )
        session.start()
        walls = [step.wall_us for step in session.stream() if step.draft_tops is not None]
    finally:
        setattr(recorder, "draft_tops_record", real)  # noqa: B010
    return statistics.median(took), statistics.median(us / wall for us, wall in zip(took, walls, strict=True))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--model",
        default=os.environ.get("DECODESCOPE_REAL_MODEL", ""),
        help="a further target, drafting for itself",
    )
    args = parser.parse_args()
    pairs = [*PAIRS]
    if args.model:
        pairs += [(args.model, args.model, "draft_model", {"max_draft_tokens": 4})]
    print("| target | drafter | vocabulary | record, µs | of a step |\n|---|---|---|---|---|")
    for target_name, draft_name, drafter, knobs in pairs:
        target = load(target_name, device=args.device)
        models = {"draft": load(draft_name, device=args.device)} if draft_name else {}
        method = Method.from_names({"drafter": drafter}, {"drafter": knobs})
        measure_share(target, models, method, args.tokens // 4)  # warms up
        median, share = measure_share(target, models, method, args.tokens)
        print(
            f"| {target.name} | {drafter} | {target.decoder.vocab:,} | {median:.0f} | {share:.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
