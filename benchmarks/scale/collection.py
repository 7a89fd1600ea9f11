"""Builds an index of many documents by the real `glow build`, but with synthetic vectors instead of the tower's.

python -m benchmarks.scale.collection --index-root INDEX --data DIR [--index-root … --data …] --work runs/scale/collection --count 10000000

Encoding ten million documents would take weeks on two cores; all other stages are the builder's own, and resumable. A document has 20 words, drawn by their frequency in the real documents, a few new ones, and a number in
0 to 999 to filter by. Vectors are those of `benchmarks.scale`, generated block by block from a seed, so only the build's
own shards store them.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

import glow_index_builder.building.steps as steps
from benchmarks.scale.processes import say
from benchmarks.scale.vectors import BLOCK_VECTORS, Real, Wanted, blocks, make, read_real
from glow.artifact import IndexRoot
from glow.collection import read_documents
from glow.index.stored_fields import DocumentStore
from glow.index.vectors.index import set_threads
from glow.index.version import Index
from glow.text import lexical_words
from glow_index_builder.building import build
from glow_index_builder.encoding import ShardJob
from glow_index_builder.encoding.files import EncodedTexts
from glow_index_builder.encoding.shards import Outcome, Run, Shard, write_shard
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages

WORDS, NEW_SHARE, NEW_WORDS = 20, 0.02, 400_000
NUMBERS = 1_000
SAMPLED = 200_000


@contextmanager
def made_vectors(
    job: ShardJob,
    documents: NDArray[np.float32],  # float32 [R, D], real vectors
    wanted: Wanted,
    noise: float,
) -> Iterator[Run]:
    """Writes synthetic vectors in place of encoding; a shard is one block of them."""
    store = DocumentStore(job.store)

    def run(shards: Sequence[Shard], careful: bool) -> Iterator[Outcome]:
        for shard in shards:
            ids = [document.id for document in store.scan(shard.start, shard.stop)]
            made = next(blocks(documents, wanted, noise, shard.start))
            part = EncodedTexts({}, made[: shard.stop - shard.start], {})
            yield Outcome(shard, write_shard(job.shards, shard, ids, [part]))

    yield run


def main(
    index_root: Annotated[list[Path], typer.Option(help="Index of real documents; may be repeated.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder of each.")],
    work: Annotated[Path, typer.Option(help="Folder for input, noise and index.")],
    count: Annotated[int, typer.Option(help="Documents to make.")] = 10_000_000,
    noise_of: Annotated[int, typer.Option(help="Vectors with which the noise is found.")] = 1_000_000,
    kind: Annotated[str, typer.Option(help="Kind of dense index.")] = "auto",
    threads: Annotated[int, typer.Option(help="Of the build.")] = 2,
) -> None:
    """Writes the input if it is missing, and builds."""
    work.mkdir(parents=True, exist_ok=True)
    set_threads(threads)
    real = read_real(index_root, data, 1000, 1000, 0)
    noise = _noise(real, work, noise_of)
    source = work / "documents.jsonl.gz"
    if not source.exists():
        write_documents(source, index_root, data, count)
    wanted = Wanted(count, "isotropic", 1.0, 0)
    # The only replaced part of the builder.
    vars(steps)["start_encoding"] = lambda _options, job, _kills: made_vectors(
        job, real.documents, wanted, noise
    )
    options = BuildOptions(
        source=str(source),
        index_root=work / "index",
        index=kind,
        shard_documents=BLOCK_VECTORS,
        threads=threads,
    )
    result = build(options, Stages(sys.stderr))
    say(json.dumps(result.report.values(), indent=1))


def _noise(real: Real, work: Path, count: int) -> float:
    """The noise that makes the vectors as hard to search as the real ones."""
    file = work / "noise.json"
    if not file.exists():
        folder = work / "noise"
        folder.mkdir(exist_ok=True)
        made = make(real, Wanted(count, "isotropic", 1.0, 0), folder, say)
        for path in folder.iterdir():
            path.unlink()
        file.write_text(json.dumps(made.noise))
    return float(json.loads(file.read_text()))


def write_documents(path: Path, roots: list[Path], data: list[Path], count: int) -> None:
    """Writes the input as a gzip file in the format of BEIR's corpus.jsonl."""
    names, shares = _words(roots, data)
    ends = np.cumsum(shares)
    partial = path.with_suffix(".partial")
    with gzip.open(partial, "wt", compresslevel=1) as file:
        for start in range(0, count, SAMPLED):
            random = np.random.default_rng((0, start))
            size = min(SAMPLED, count - start)
            drawn = np.searchsorted(ends, random.random((size, WORDS)) * ends[-1])
            numbers = random.integers(0, NUMBERS, size).tolist()
            for row, (words, number) in enumerate(zip(drawn.tolist(), numbers, strict=True), start):
                text = " ".join([names[word] for word in words])
                file.write(f'{{"_id": "m{row:09d}", "text": "{text}", "number": {number}}}\n')
    partial.rename(path)


def _words(roots: list[Path], data: list[Path]) -> tuple[list[str], NDArray[np.float64]]:
    """Words of the real documents with their frequencies, and new ones with a total of `NEW_SHARE`, by Zipf's law."""
    counts: Counter[str] = Counter()
    for root, folder in zip(roots, data, strict=True):
        pre = Index.open(IndexRoot(root).folder(IndexRoot(root).current())).preprocessor
        for document in read_documents(folder / "corpus.jsonl", pre.schema.names):
            counts.update(
                word
                for word in lexical_words(document, pre.schema, pre.pieces)
                if word.isascii() and word.isalnum()
            )
    new = NEW_SHARE * counts.total() / np.arange(10, NEW_WORDS + 10)
    new *= NEW_SHARE * counts.total() / new.sum()
    names = [*counts, *(f"zq{number:x}" for number in range(NEW_WORDS))]
    return names, np.concatenate([np.array(list(counts.values()), float), new])


if __name__ == "__main__":
    typer.run(main)
