"""What the blocks of a model take in a pass at every width, as the table that the transform `latency_fit` reads.

python benchmarks/blocks.py --model lab --rows 1 > times.json
"""

from __future__ import annotations

import argparse

import torch

from decodescope.engine.methods.weights.shared.block_times import measure_times
from decodescope.engine.session.load import load


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab")
    parser.add_argument("--rows", type=int, default=1, help="of a pass")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(measure_times(load(args.model, args.dtype).decoder, args.rows).record())


if __name__ == "__main__":
    main()
