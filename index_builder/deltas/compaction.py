"""Base and delta made into one version without a delta: the same documents, term table and vectors, nothing encoded again."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from glow import __version__
from glow.artifact import QUERY_TOWER, ArtifactWriter, IndexRoot
from glow.errors import BuildError, ConfigError
from glow.index import DENSE_FILE, DOCUMENTS_FILE, MODEL_FOLDER, REPORT_FILE, Index, StoredVectors, open_dense
from glow.index.columns import COLUMNS_FOLDER, Columns, build_columns
from glow.index.delta import (
    SegmentSlice,
    SegmentVectors,
    merge_documents,
    merge_impacts,
    merge_passages,
    merge_spelling,
    merge_term_states,
)
from glow.index.milvus import STORE_FILE, read_store_header
from glow.index.passages import PASSAGES_FOLDER, PassageMap
from glow.index.postings import IMPACTS_FOLDER, LEARNED_FOLDER
from glow.index.spelling import SPELLING_FOLDER
from glow.index.stored_fields import DocumentStore
from glow.index.token_embeddings import STATES_FOLDER
from glow.index.vectors import DenseIndex, IndexKind, build_dense, choose_kind, require_buildable, set_threads
from glow.runtime import Encoder
from glow_index_builder.building import (
    VectorStore,
    describe_columns,
    describe_lexical,
    measure_recall,
    stage_seconds,
    write_json,
)
from glow_index_builder.deltas.open_version import OpenVersion
from glow_index_builder.deltas.options import CompactOptions
from glow_index_builder.input import REJECTS_FILE
from glow_index_builder.progress import Stages
from glow_index_builder.versions import VersionWriter, describe_heir, disk_errors, link_files

__all__ = ["compact"]

MADE_ANEW = (
    DOCUMENTS_FILE,
    DENSE_FILE,
    STORE_FILE,
    REPORT_FILE,
    REJECTS_FILE,
    f"{COLUMNS_FOLDER}/",
    f"{IMPACTS_FOLDER}/",
    f"{LEARNED_FOLDER}/",
    f"{PASSAGES_FOLDER}/",
    f"{SPELLING_FOLDER}/",
    f"{STATES_FOLDER}/",
)
"""Files of a base, or the beginnings of their paths, that do not stay; term table, model and fusion do."""


def compact(options: CompactOptions, stages: Stages) -> dict[str, Any]:
    """Folds the delta of the live version into its base, and publishes the result.

    No other command changes the root meanwhile: a change would be lost.

    Returns:
        The report, as docs/deltas.md describes it.

    Raises:
        ArtifactError: if the index is missing or damaged.
        BuildError: if no document is left, or the disk; the live version is unchanged.
        BusyError, ReadOnlyError: if the root is being changed, or cannot be written.
    """
    root = IndexRoot(options.output)
    root.current()
    set_threads(options.thread_count)
    with disk_errors(options.output), root.locked(options.wait_s):
        live = OpenVersion.open(root)
        if live.delta is None:
            return {"status": "unchanged", "version": live.folder.name, "documents": live.base.count}
        if not live.documents.count:
            raise BuildError("no document is left to compact; build an index of others")
        target = VersionWriter(root)
        report = _Compaction(options, live, stages).run(target)
        with stages.stage("publish"):
            target.open(Index.open)
            root.publish(target.version)
    return {**report, "seconds": stage_seconds(stages.seconds)}


class _Compaction:
    """The stages, each a method, over one folder in the making."""

    def __init__(self, options: CompactOptions, live: OpenVersion, stages: Stages) -> None:
        self.options = options
        self.live = live
        self.stages = stages
        delta = live.whole_delta()
        self.segments: list[SegmentSlice] = [live.slice_of_base(), *([delta] if delta else [])]

    def run(self, target: VersionWriter) -> dict[str, Any]:
        """Writes the version; returns the report."""
        with target.write() as writer:
            self._link(writer)
            report = self._write(writer)
            report["version"] = target.version
            write_json(writer.folder / REPORT_FILE, report)
        return report

    def _write(self, writer: ArtifactWriter) -> dict[str, Any]:
        folder, stages = writer.folder, self.stages
        with stages.stage("documents"):
            merge_documents(self.segments, folder / DOCUMENTS_FILE)
            store = DocumentStore(folder / DOCUMENTS_FILE)
        with stages.stage("columns"):
            columns = build_columns(store, folder)
        lexical = None
        if self.segments[0].impacts is not None:
            with stages.stage("lexical"):
                lexical = merge_impacts(self.segments, folder / IMPACTS_FOLDER)
                merge_spelling(self.segments, folder)
        if self.segments[0].learned is not None:
            with stages.stage("learned"):
                merge_impacts(self.segments, folder / LEARNED_FOLDER, learned=True)
        passages = None
        if self.segments[0].passages is not None:
            passages = merge_passages(self.segments, folder)
        merge_term_states(self.segments, folder)
        vectors = SegmentVectors(self.segments, self.live.rules.dimensions)
        count = len(vectors)
        kind = self._kind(count)
        with stages.stage("index"):
            dense = self._index(folder, vectors, kind, store, passages)
        with stages.stage("recall"):
            recall = measure_recall(dense, vectors, store, self.live.preprocessor, self._query_encoder())
        self._describe(writer, store.count, passages, kind)
        return {
            "status": "compacted",
            "tool": f"glow {__version__}",
            "compacted_version": self.live.folder.name,
            "counts": {"documents": store.count, **({"passages": count} if passages else {})},
            "index": {"kind": kind, "dimensions": dense.dimensions},
            "recall": asdict(recall),
            "columns": describe_columns(columns),
            "lexical": describe_lexical(lexical, folder) if lexical else None,
        }

    def _link(self, writer: ArtifactWriter) -> None:
        """Term table, model and fusion stay the files they are."""
        files = self.live.manifest.files
        kept = {
            name: record
            for name, record in files.items()
            if OpenVersion.is_base_file(name) and not name.startswith(MADE_ANEW)
        }
        writer.known = link_files(self.live.folder, kept, writer.folder)

    def _kind(self, count: int) -> IndexKind:
        """As a build of so many vectors with the options of the base's would choose."""
        parameters = self.live.manifest.parameters
        wanted: Any = parameters.get("index", "auto")
        if wanted == "auto":
            memory_bytes = int(parameters.get("memory_mb", 4096)) << 20
            return choose_kind(count, self.live.rules.dimensions, memory_bytes)
        try:
            require_buildable(wanted, count)
        except ConfigError:  # deletions left too few for what was asked for
            return "flat"
        kind: IndexKind = wanted
        return kind

    def _index(
        self,
        folder: Path,
        vectors: SegmentVectors,
        kind: IndexKind,
        store: DocumentStore,
        passages: PassageMap | None,
    ) -> StoredVectors:
        """Of the kind of the base's, and where that is."""
        base = self.live.dense
        if isinstance(base, DenseIndex):
            build_dense(vectors, kind, like=base).save(folder / DENSE_FILE)
            return open_dense(folder)
        hashes = self.live.manifest.hashes
        columns = Columns.open(folder, store.count)
        target = VectorStore(read_store_header(self.live.folder).address, folder)
        target.write(folder, vectors, kind, (hashes["model"], hashes["terms"]), columns, passages)
        target.forget()
        return open_dense(folder)

    def _query_encoder(self) -> Encoder:
        tower = self.live.folder / MODEL_FOLDER / QUERY_TOWER
        return Encoder(tower, self.live.preprocessor.pieces.pad_id, "cpu", self.options.thread_count)

    def _describe(
        self, writer: ArtifactWriter, documents: int, passages: PassageMap | None, kind: IndexKind
    ) -> None:
        manifest = self.live.manifest
        counts = {
            "documents": documents,
            "rejects": 0,
            "dimensions": manifest.counts["dimensions"],
            **({"passages": len(passages)} if passages else {}),
        }
        parents = {name: parent for name, parent in manifest.parents.items() if name != "base"}
        describe_heir(writer, manifest, parents, {"kind": kind}, counts)
