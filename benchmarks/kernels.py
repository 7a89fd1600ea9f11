"""Finds the fastest form of the query tower on this CPU: times of single queries and batches, in one run.

python -m benchmarks.kernels --queries $DATA/tldr/queries.jsonl [--model models/NAME] [--openvino]

The forms alternate, so that other load affects all of them. `--openvino` also times OpenVINO on the float tower
(`pip install openvino`).
"""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer

from benchmarks.quantization import VARIANTS
from benchmarks.report import emit, table
from glow.artifact import default_model
from glow.collection import read_queries
from glow.runtime import Encoder, Model
from glow.text import WeightedTokens, pad
from glow.training import read_towers
from glow_model_export.graph import export_graph

FORMS = (
    "float",
    "a scale for each token and column",
    "blocks of 32, int8 accumulation",
    "blocks of 32, 4 bits",
)
BATCHES = (1, 8, 32)
Run = Callable[[Sequence[WeightedTokens]], Any]


def main(
    queries: Annotated[Path, typer.Option(help="queries.jsonl.")],
    model: Annotated[Path | None, typer.Option(help="Model folder; default: models/DEFAULT.")] = None,
    count: Annotated[int, typer.Option(help="Queries, drawn with a fixed seed.")] = 400,
    repeats: Annotated[int, typer.Option(help="Turns of each form; the fastest counts.")] = 6,
    openvino: Annotated[bool, typer.Option(help="Time OpenVINO as well.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
) -> None:
    """Prints milliseconds per query of each form, and the cosine of its vectors to float."""
    logging.disable(logging.INFO)  # the quantizer logs every node
    opened = Model.open(model or default_model())
    texts = [query.text for query in read_queries(queries)]
    drawn = np.random.default_rng(0).permutation(len(texts))[:count]
    tokens = sorted((opened.preprocessor.query(texts[row]) for row in drawn), key=len)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        onnx.save(export_graph(read_towers(opened).query), folder / "source.onnx")
        runs: dict[str, Run] = {}
        for number, form in enumerate(FORMS):
            path = folder / f"{number}.onnx"
            VARIANTS[form](folder / "source.onnx", path, tokens)
            runs[form] = Encoder(path, opened.preprocessor.pieces.pad_id, threads=1).run
        if openvino:
            runs["float, OpenVINO"] = _openvino(folder / "source.onnx", opened.preprocessor.pieces.pad_id)
        best = _race(runs, tokens, repeats)
    vectors = {form: np.concatenate([run([one]) for one in tokens]) for form, run in runs.items()}
    rows = [
        [form, *times, round(float((vectors[form] * vectors["float"]).sum(1).mean()), 5)]
        for form, times in best.items()
    ]
    length = round(float(np.mean([len(one) for one in tokens])), 1)
    head = ["form", *(f"ms a query, batches of {size}" for size in BATCHES), "mean cosine to float"]
    report = {"model": opened.label, "queries": len(tokens), "mean_tokens": length, "rows": rows}
    emit(report, table(head, rows), json_file, None)


def _race(runs: Mapping[str, Run], tokens: Sequence[WeightedTokens], repeats: int) -> dict[str, list[float]]:
    """Each form's milliseconds per query for each batch size, the fastest of its rounds."""
    best = {form: [float("inf")] * len(BATCHES) for form in runs}
    for _ in range(repeats):
        for form, run in runs.items():
            for place, size in enumerate(BATCHES):
                start = time.perf_counter()
                for first in range(0, len(tokens), size):
                    run(tokens[first : first + size])
                took = 1e3 * (time.perf_counter() - start) / len(tokens)
                best[form][place] = min(best[form][place], round(took, 3))
    return best


def _openvino(path: Path, pad_id: int) -> Run:
    import openvino  # type: ignore[import-not-found]  # whoever wants it timed installs it

    hints = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(str(path), "CPU", hints).create_infer_request()

    def run(tokens: Sequence[WeightedTokens]) -> Any:
        batch = pad(tokens, pad_id)
        inputs = {
            "ids": batch.ids,
            "mask": batch.mask,
            "field_ids": batch.field_ids,
            "weights": batch.weights,
        }
        return request.infer(inputs, share_inputs=True)["vector"]

    return run


if __name__ == "__main__":
    typer.run(main)
