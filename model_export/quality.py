"""Measures the loss by quantization: nDCG@10 of quantized against float towers."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glow.errors import ExportError
from glow.evaluation import Corpus, DenseOptions, DenseRetriever, evaluate, find_tasks
from glow.records import Document
from glow.runtime import Model
from glow_model_export.package import Source, export_model
from glow_model_export.quantize import Quantization

__all__ = ["MAX_NDCG_LOSS", "check_quality"]

MAX_NDCG_LOSS = 0.01
MEASURE = "nDCG@10"


def check_quality(
    source: Source,
    how: Quantization,
    data: Path,
    split: str,
    queries: Sequence[str] = (),
    documents: Sequence[Document] = (),
) -> dict[str, Any]:
    """Searches a split exactly with float and with quantized towers.

    Args:
        source: the trained towers.
        how: precision to ship.
        data: BEIR data directory.
        split: split of its relevance judgments.
        queries, documents: its texts for the parity check of both precisions. After little training, quantized towers
            differ from float ones on random words, but not on natural texts.

    Returns:
        `data`, `split`, `queries` and nDCG@10 by precision.

    Raises:
        ExportError: if the quantized towers lose more than `MAX_NDCG_LOSS`.
        InputError: if the data cannot be read.
    """
    (task,) = find_tasks(data, [split])
    corpus = Corpus(data, source.preprocessor.schema.names)
    options = DenseOptions(threads=os.cpu_count() or 1)
    values: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for precision in dict.fromkeys(("none", how)):
            folder = Path(scratch) / precision
            export_model(source, folder, precision, queries, documents, token_size=0)
            retriever = DenseRetriever(Model.open(folder), corpus, options)
            run = retriever.search(task.queries, 100)
            values[precision] = evaluate(run, task.qrels, [MEASURE]).means[MEASURE]
    if values["none"] - values[how] > MAX_NDCG_LOSS:
        raise ExportError(
            f"{how} towers reach {MEASURE} {values[how]:.4f} on {task.data} {split}, float ones {values['none']:.4f}: "
            f"a loss over {MAX_NDCG_LOSS}; export with --quantize none or fp16"
        )
    return {"data": task.data, "split": split, "queries": len(task.queries), MEASURE: values}
