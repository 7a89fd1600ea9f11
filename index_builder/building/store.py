"""The last step of a build or a compaction with `--store`: moves rows from files into Milvus."""

from collections.abc import Mapping
from pathlib import Path

from glow.index import Rules, Segment
from glow.index.milvus import store_segment
from glow.index.vectors import VECTORS, VectorRules
from glow_index_builder.progress import Stages

__all__ = ["store_rows"]


def store_rows(folder: Path, made: Segment, rules: Mapping[str, Rules], notes: Path, stages: Stages) -> None:
    """Moves the rows, if the rules of vectors name a server.

    Args:
        folder: the version's directory; imported files are removed from it.
        made: the finished segment, with local files.
        rules: of its components.
        notes: directory for the progress, which a repeated build continues from.
        stages: progress and messages.

    Raises:
        StoreError: if the server does not respond.
    """
    vectors = rules[VECTORS.name]
    if not isinstance(vectors, VectorRules) or vectors.store is None:
        return
    with stages.stage("store", made.rows.documents, "documents") as advance:
        store_segment(made, folder, vectors.store, notes, advance)
