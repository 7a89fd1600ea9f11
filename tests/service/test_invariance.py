"""A query's vector, and what it finds, depends on the query alone: the shipped model over a thousand real queries."""

import asyncio
import time
from itertools import islice
from pathlib import Path

import numpy as np

from glow.artifact import default_model
from glow.collection import read_documents, read_queries
from glow.runtime import Encoder, Model
from glow.text import WeightedTokens
from glow_service.search.clock import Deadline
from glow_service.search.pool import SearchPool
from glow_service.telemetry.metrics import Metrics

ROOT = Path(__file__).parent.parent.parent
QUERIES, DOCUMENTS, TOP = 1_000, 400, 10


def test_a_vector_is_the_same_alone_and_in_any_batch(shared_data: Path) -> None:
    model = Model.open(default_model(ROOT / "models"))
    preprocessor, tower = model.preprocessor, model.encoder("query")
    queries = islice(read_queries(shared_data / "tldr" / "queries.jsonl"), QUERIES)
    sequences = [preprocessor.query(query.text) for query in queries]
    corpus = read_documents(shared_data / "tldr" / "corpus.jsonl", preprocessor.schema.names)
    documents = [preprocessor.document(document) for document in islice(corpus, DOCUMENTS)]
    indexed = model.encoder("document").encode(documents)
    alone = np.stack([tower.run([sequence])[0] for sequence in sequences])
    together = asyncio.run(_served(tower, sequences))
    assert len(sequences) == QUERIES
    assert (alone * together).sum(1).min() >= 0.999 and np.abs(alone - together).max() <= 1e-5
    tops = [np.argsort(-(vectors @ indexed.T), 1, kind="stable")[:, :TOP] for vectors in (alone, together)]
    assert (tops[0] == tops[1]).all(1).mean() >= 0.99


async def _served(tower: Encoder, sequences: list[WeightedTokens]) -> np.ndarray:
    """Through the batcher, all at once: batches are as large as they get."""
    pool = SearchPool(metrics := Metrics(), 1, 100)
    later = Deadline(time.perf_counter() + 600)
    try:
        calls = [pool.batcher.run(tower, sequence, lambda _, vector: vector, later) for sequence in sequences]
        vectors = np.stack(await asyncio.gather(*calls))
    finally:
        pool.close()
    batches = metrics.registry.get_sample_value("glow_batch_queries_count") or 0
    assert QUERIES / batches > 8
    return vectors
