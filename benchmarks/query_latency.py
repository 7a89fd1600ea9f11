"""Times one query of 12 tokens on one thread: preprocessing, encoding, and both.

python -m benchmarks.query_latency [--model models/NAME] [--runs 2000]
"""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.report import emit_json
from glow.artifact import default_model
from glow.runtime import Model

QUERIES = (
    "how do i remove a directory and everything that is inside",
    "what are the first signs of iron deficiency in children",
    "convert a list of numbers to one string with commas between",
    "which foods should people with high blood pressure not eat",
)


def main(
    model: Annotated[Path | None, typer.Option(help="Model folder; default: models/DEFAULT.")] = None,
    runs: Annotated[int, typer.Option(help="Timed queries.")] = 2000,
) -> None:
    """Prints medians and 99th percentiles in milliseconds as JSON."""
    opened = Model.open(model or default_model())
    encoder = opened.encoder("query", threads=1)
    preprocess, encode = [], []
    lengths = [len(opened.preprocessor.query(text)) for text in QUERIES]
    for run in range(runs + 200):
        text = QUERIES[run % len(QUERIES)]
        start = time.perf_counter()
        tokens = opened.preprocessor.query(text)
        middle = time.perf_counter()
        encoder.encode([tokens])
        end = time.perf_counter()
        if run >= 200:  # the first ones warm up caches
            preprocess.append(middle - start)
            encode.append(end - middle)
    both = np.array(preprocess) + np.array(encode)
    stages = {"preprocess": preprocess, "encode": encode, "both": both}
    report = {
        "model": opened.label,
        "tokens": lengths,
        "runs": runs,
        "milliseconds": {
            name: {
                "p50": round(1e3 * float(np.median(t)), 3),
                "p99": round(1e3 * float(np.quantile(t, 0.99)), 3),
            }
            for name, t in stages.items()
        },
    }
    emit_json(report)


if __name__ == "__main__":
    typer.run(main)
