"""One build from start to end: input to a verified version in the index root, published or not."""

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import ArtifactWriter, IndexRoot, write_artifact
from glow.artifact.model import EXPLAIN_FILES, QUERY_SIDE_FILES
from glow.errors import BuildError, GlowError
from glow.runtime import Model
from glow.runtime.encoder import DEFAULT_BATCH_TOKENS
from glow.search import (
    DenseIndex,
    DocumentStore,
    ImpactHeader,
    Index,
    IndexKind,
    PassageMap,
    build_columns,
    build_dense,
    build_lexical,
    choose_kind,
    passages_of,
    require_buildable,
    require_device,
    set_threads,
)
from glow.search.impacts_format import IMPACTS_FOLDER
from glow.search.index import DENSE_FILE, DOCUMENTS_FILE, MODEL_FOLDER, REPORT_FILE, TERMS_FOLDER
from glow.text import Preprocessor, TermTable, lexical_words, select_terms
from index_builder.corpus import CorpusStats, read_corpus
from index_builder.encode import encode_corpus, map_vectors
from index_builder.options import BuildOptions
from index_builder.passages import cut_documents, describe_passages, open_cutter
from index_builder.progress import Stages
from index_builder.recall import measure_recall
from index_builder.rejects import REJECTS_FILE, RejectLog
from index_builder.report import (
    build_report,
    describe_columns,
    describe_explain,
    describe_index,
    describe_lexical,
    stage_seconds,
    write_json,
)
from index_builder.source import Source, open_sources

__all__ = ["BuildResult", "build"]

VECTORS_FILE = "vectors.f32"
"""Working file: the encoded documents, until the dense index holds them."""
CPU_BATCH_TOKENS = 512
"""Small batches stay in a core's cache: 16 ms of CPU a document against 20 at 4,096 tokens (3 layers, 155 tokens)."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build made.

    Attributes:
        version: its name.
        folder: where it lies.
        report: the build report.
        rejects_file: the rejected lines, if there are any.
    """

    version: str
    folder: Path
    report: dict[str, Any]
    rejects_file: Path | None


def build(options: BuildOptions, stages: Stages) -> BuildResult:
    """Builds one index version.

    Nothing is visible before the version is whole and has been opened once; when anything fails, the root is as
    it was, but for the rejects of bad input.

    Args:
        options: what to build.
        stages: progress and times.

    Raises:
        InputError: the input or an option cannot be used.
        ArtifactError: the model cannot be used.
        DeviceError: the device is not there.
        BuildError: too many rejects, no document, or the disk.
    """
    require_device(options.index, options.device)
    sources = open_sources(options.source)
    model = Model.open(options.model)
    options.check_rename(model.preprocessor.schema.names)
    set_threads(options.threads)
    root = IndexRoot(options.output)
    version = root.new_version()
    try:
        with write_artifact(root.folder(version), "index") as writer:
            report = _Build(options, model, sources, writer, stages).run(root, version)
        with stages.stage("check"):
            rejects_file = _check(root, version)
            if options.publish:
                root.publish(version)
    except OSError as error:
        raise BuildError(_disk_message(options.output, error.strerror or str(error))) from error
    except sqlite3.Error as error:
        raise BuildError(_disk_message(options.output, str(error))) from error
    report |= {"published": options.publish, "seconds": stage_seconds(stages.seconds)}
    return BuildResult(version, root.folder(version), report, rejects_file)


class _Build:
    """The stages of one build, each a method, over one folder in the making."""

    def __init__(
        self,
        options: BuildOptions,
        model: Model,
        sources: list[Source],
        writer: ArtifactWriter,
        stages: Stages,
    ) -> None:
        self.options = options
        self.model = model
        self.sources = sources
        self.writer = writer
        self.folder = writer.folder
        self.stages = stages
        # Opened before the first stage: a device that is not there must not show after hours of reading.
        batch_tokens = CPU_BATCH_TOKENS if options.device == "cpu" else DEFAULT_BATCH_TOKENS
        self.document_encoder = model.encoder("document", options.device, 1, batch_tokens)
        self.cutter = open_cutter(options, model.preprocessor)
        self.query_encoder = model.encoder("query", options.device, options.threads, batch_tokens)

    def run(self, root: IndexRoot, version: str) -> dict[str, Any]:
        """Runs all stages and fills the manifest; returns the report."""
        with RejectLog(self.folder / REJECTS_FILE) as rejects:
            corpus = self._read(rejects)
            keep_as = root.path / f"rejects-{version}.jsonl"
            rejects.require_share(corpus.documents, self.options.max_reject_share, keep_as)
        store = DocumentStore(self.folder / DOCUMENTS_FILE)
        passages = cut_documents(store, self.cutter, self.folder, self.stages)
        count = len(passages) if passages else store.count
        kind = self._kind(count)
        terms = self._terms(corpus)
        preprocessor = self.model.with_terms(terms)
        with self.stages.stage("columns"):
            columns = build_columns(store, self.folder)
        lexical = self._lexical(store, corpus, terms)
        truncated = self._encode(store, passages, preprocessor)
        vectors = map_vectors(self.folder / VECTORS_FILE, count, self.document_encoder.dimensions)
        dense = self._index(vectors, kind)
        with self.stages.stage("recall"):
            recall = measure_recall(dense, vectors, store, preprocessor, self.query_encoder)
        del vectors
        (self.folder / VECTORS_FILE).unlink()
        self._copy_model()
        size_bytes = (self.folder / DENSE_FILE).stat().st_size
        index = describe_index(kind, self.options, count, dense.dimensions, size_bytes)
        seconds = self.stages.seconds
        report = build_report(
            version, self.options, self.model, corpus, rejects, terms, truncated, index, recall, seconds
        )
        report["columns"] = describe_columns(columns)
        if passages:
            report["passages"] = describe_passages(passages, seconds)
        report["lexical"] = describe_lexical(lexical, self.folder) if lexical else None
        report["explain"] = describe_explain(self.folder)
        write_json(self.folder / REPORT_FILE, report)
        self._describe(corpus, rejects, terms, kind)
        if passages:
            self.writer.counts["passages"] = len(passages)
        return report

    def _read(self, rejects: RejectLog) -> CorpusStats:
        sizes = [source.size_bytes for source in self.sources]
        total = sum(size for size in sizes if size) if all(sizes) else None
        with self.stages.stage("read", total, "bytes") as advance:
            return read_corpus(
                self.sources,
                self.model.preprocessor,
                self.options,
                self.folder / DOCUMENTS_FILE,
                rejects,
                advance,
            )

    def _kind(self, count: int) -> IndexKind:
        options = self.options
        kind: IndexKind
        if options.index == "auto":
            dimensions = self.document_encoder.dimensions
            kind = choose_kind(count, dimensions, options.memory_mb << 20, options.device)
        else:
            kind = options.index
        require_buildable(kind, count)
        return kind

    def _terms(self, corpus: CorpusStats) -> TermTable:
        """The table as a service will read it: from its files."""
        with self.stages.stage("terms"):
            own = self.model.preprocessor.terms
            select_terms(self.options.term_stats, corpus.terms, own).save(self.folder / TERMS_FOLDER)
            return TermTable.load(self.folder / TERMS_FOLDER)

    def _lexical(self, store: DocumentStore, corpus: CorpusStats, terms: TermTable) -> ImpactHeader | None:
        """The lexical index, from a second reading of the documents: only now their words are counted."""
        if not self.options.lexical:
            return None
        own = self.model.preprocessor
        with self.stages.stage("lexical", store.count, "documents") as advance:
            words = (lexical_words(document, own.schema, own.pieces) for document in store.scan())
            return build_lexical(self.folder / IMPACTS_FOLDER, _counted(words, advance), corpus.terms, terms)

    def _encode(
        self, store: DocumentStore, passages: PassageMap | None, preprocessor: Preprocessor
    ) -> dict[str, int]:
        unit, count = ("passages", len(passages)) if passages else ("documents", store.count)
        with self.stages.stage("encode", count, unit) as advance:
            return encode_corpus(
                passages_of(store.scan(), passages) if passages else store.scan(),
                preprocessor,
                self.document_encoder,
                self.options.threads,
                self.folder / VECTORS_FILE,
                advance,
            )

    def _index(self, vectors: NDArray[np.float32], kind: IndexKind) -> DenseIndex:
        """Builds, saves and opens again: recall is measured on what is served."""
        with self.stages.stage("index"):
            build_dense(vectors, kind, self.options.device).save(self.folder / DENSE_FILE)
            return DenseIndex.load(self.folder / DENSE_FILE)

    def _copy_model(self) -> None:
        target = self.folder / MODEL_FOLDER
        target.mkdir()
        for name in self._copied():
            shutil.copyfile(self.model.folder / name, target / name)

    def _copied(self) -> tuple[str, ...]:
        """Files of the model that the version holds."""
        can_explain = all(name in self.model.manifest.files for name in EXPLAIN_FILES)
        return (*QUERY_SIDE_FILES, *(EXPLAIN_FILES if self.options.explain and can_explain else ()))

    def _describe(self, corpus: CorpusStats, rejects: RejectLog, terms: TermTable, kind: IndexKind) -> None:
        files = self.model.manifest.files
        self.writer.hashes = {"model": self.model.hash, "terms": terms.hash}
        self.writer.parents = {
            "model": {
                "name": self.model.manifest.name,
                "hash": self.model.hash,
                "files": {name: files[name].sha256 for name in self._copied()},
            }
        }
        self.writer.parameters = {**self.options.parameters(), "kind": kind}
        self.writer.counts = {
            "documents": corpus.documents,
            "rejects": rejects.count,
            "dimensions": self.document_encoder.dimensions,
        }


def _counted(documents: Iterable[Iterable[str]], advance: Callable[[int], None]) -> Iterator[Iterable[str]]:
    for document in documents:
        yield document
        advance(1)


def _check(root: IndexRoot, version: str) -> Path | None:
    """Opens the finished version as a service would; one that cannot be opened is removed."""
    folder = root.folder(version)
    try:
        Index.open(folder)
    except BaseException as error:
        shutil.rmtree(folder)
        if not isinstance(error, GlowError):
            raise
        raise BuildError(f"the new version cannot be opened and was removed: {error}") from error
    rejects = folder / REJECTS_FILE
    return rejects if rejects.is_file() else None


def _disk_message(output: Path, reason: str) -> str:
    return f"cannot write the index below {output}: {reason}; the live index is unchanged"
