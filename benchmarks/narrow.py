"""How long one product takes with weights in few bits, beside the same weights dense: `python benchmarks/narrow.py`."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from decodescope.engine.model.layers.compressed_matrices import Int4Matrix, Int8Matrix
from decodescope.engine.model.layers.matrix import linear, pack

ROWS = (1, 8, 16, 32, 128)


def microseconds(run: Callable[[], object], repeats: int) -> float:
    """The median, after one run that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def main() -> None:
    """Print a row for each type and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shape", type=int, nargs=2, default=(1536, 384), help="outputs and inputs of the matrix"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    out, inner = args.shape
    print(
        "| type | rows | dense | `int8` operator | `int8` plain way | `int8` as it is used | `int4` as it is used |"
    )
    print("|---|---|---|---|---|---|---|")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        q, scale = torch.randint(-127, 128, (out, inner), dtype=torch.int8), torch.rand(out).to(dtype)
        eight, dense = Int8Matrix.from_codes(q, scale), pack(torch.randn(out, inner).to(dtype))
        groups = torch.rand(out, inner // 64).to(dtype)
        four = Int4Matrix.from_codes(torch.randint(0, 16, (out, inner), dtype=torch.uint8), groups, groups)
        for rows in ROWS:
            x = torch.randn(rows, inner).to(dtype)
            ways: list[Callable[[], object]] = [
                lambda x=x, w=dense: linear(x, w),
                lambda x=x, w=eight: torch.ops.aten._weight_int8pack_mm(x, w.parts["q"], w.parts["scale"]),
                lambda x=x, w=eight: F.linear(x, w.dense_weight()),
                lambda x=x, w=eight: linear(x, w),
                lambda x=x, w=four: linear(x, w),
            ]
            figures = " | ".join(f"{microseconds(way, args.repeats):.0f}" for way in ways)
            print(f"| {str(dtype).removeprefix('torch.')} | {rows} | {figures} |")


if __name__ == "__main__":
    main()
