"""The steps of a build, each over what the ones before it left in the work folder.

A step that an earlier run finished is read back instead of done. Documents that cannot be encoded are known only after
encoding, so what is made per document (columns, impacts) comes after it, over a store without them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from glow.artifact import LEARNED_HEAD
from glow.index import DENSE_FILE, DOCUMENTS_FILE, STEMS_FOLDER, TERMS_FOLDER, open_dense
from glow.index.columns import Columns, build_columns
from glow.index.learned_sparse import LEARNED_WORDS_FOLDER, WordScorer, WordSide, build_learned
from glow.index.passages import PASSAGES_FOLDER, PassageMap
from glow.index.postings import IMPACTS_FOLDER, LEARNED_FOLDER, PACKED_FROM, build_lexical, pack_lists
from glow.index.spelling import SPELLING_FOLDER, build_spelling
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.index.token_embeddings import STATES_FOLDER, StatesHeader
from glow.index.vectors import IndexKind, VectorRows, build_dense
from glow.runtime import Encoder, LearnedHead, Model
from glow.text import Analyzer, PassageCutter, TermTable, lexical_words, select_terms
from glow_index_builder.building.corpus import CorpusStats, read_corpus
from glow_index_builder.building.prepared import Corpus, Terms
from glow_index_builder.building.recall import measure_recall
from glow_index_builder.building.report import (
    describe_columns,
    describe_learned,
    describe_lexical,
    describe_states,
)
from glow_index_builder.building.vector_store import VectorStore
from glow_index_builder.building.work import Step, WorkFolder
from glow_index_builder.encoding import (
    Encoded,
    EncodeJob,
    LearnedJob,
    StatesJob,
    batch_tokens,
    cut_documents,
    encode_shards,
    make_insert,
    make_runner,
    make_word_side,
    plan_shards,
)
from glow_index_builder.input import REJECTS_FILE, RejectLog, Source
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages

__all__ = ["Steps"]

CORPUS_TERMS, CORPUS_STEMS = "corpus", "corpus-stems"
"""Folders of the read step: the tables of the documents' words, which the lexical index takes its words from, and of their
stems."""
SHARDS_FOLDER = "shards"
Advance = Callable[[int], None]


class Steps:
    """What a build does, step by step.

    Args:
        options: what to build.
        model: the model.
        work: where steps are kept.
        stages: progress and times.
        keep_rejects: where `rejects.jsonl` goes when there are too many.
        states: header of the term representations; None: there are none.
    """

    def __init__(
        self,
        options: BuildOptions,
        model: Model,
        work: WorkFolder,
        stages: Stages,
        keep_rejects: Path,
        states: StatesHeader | None = None,
    ) -> None:
        self._options = options
        self._model = model
        self._work = work
        self._stages = stages
        self._keep_rejects = keep_rejects
        self._states = states
        self._analyzer = Analyzer(options.analyzer)
        self._has_stems = options.lexical and options.analyzer != "plain"

    def read(self, sources: list[Source], cutter: PassageCutter | None) -> Corpus:
        """Reads the input into a store, and cuts it where it is to be cut.

        Raises:
            InputError: if a file cannot be read.
            BuildError: if there are too many rejects, or no document.
        """
        sizes = [source.size_bytes for source in sources]
        total = sum(size for size in sizes if size) if all(sizes) else None
        options, own = self._options, self._model.preprocessor
        with self._step("read", total, "bytes") as (step, advance):
            if not step.is_done:
                with RejectLog(step.folder / REJECTS_FILE) as rejects:
                    store = step.folder / DOCUMENTS_FILE
                    stats = read_corpus(sources, own, options, store, rejects, advance)
                    rejects.require_share(stats.documents, options.max_reject_share, self._keep_rejects)
                stats.terms.save(step.folder / CORPUS_TERMS)
                if self._has_stems:
                    stats.stems.save(step.folder / CORPUS_STEMS)
                step.values = {
                    "documents": stats.documents,
                    "read_bytes": stats.read_bytes,
                    "rejects": rejects.counts,
                }
        return self._cut(self._corpus(step), cutter, "passages")

    def terms(self, corpus: Corpus) -> Terms:
        """The table of the index, as a service will read it: from its files."""
        with self._step("terms") as (step, _):
            if not step.is_done:
                own = self._model.preprocessor.terms
                table = select_terms(self._options.term_stats, corpus.stats.terms, own)
                table.save(step.folder / TERMS_FOLDER)
        return Terms(step, TermTable.load(step.folder / TERMS_FOLDER))

    def learned_words(self, corpus: Corpus, terms: TermTable) -> Step | None:
        """The words that learned impacts are made for; None without."""
        options = self._options
        if not options.learned:
            return None
        with self._step("learned-words") as (step, _):
            if not step.is_done:
                table, limit, threads = corpus.stats.terms, options.learned_words, options.thread_count
                side = make_word_side(self._model, corpus.store.scan(), table, terms, limit, threads)
                side.save(step.folder / LEARNED_WORDS_FOLDER)
        return step

    def encode(self, corpus: Corpus, dimensions: int) -> tuple[Encoded, VectorRows]:
        """Encodes the corpus in shards.

        Raises:
            BuildError: if workers cannot start, or shards fail for no document's sake.
        """
        options, folder = self._options, self._work.path / SHARDS_FOLDER
        passages = self._work.path / "passages" / PASSAGES_FOLDER
        job = EncodeJob(
            model=options.model_folder.resolve(),
            store=(corpus.step.folder / DOCUMENTS_FILE).resolve(),
            terms=(self._work.path / "terms" / TERMS_FOLDER).resolve(),
            passages=passages.resolve() if corpus.passages else None,
            shards=folder.resolve(),
            device=options.device,
            threads=max(1, options.thread_count // options.workers),
            states=StatesJob(options.rerank.resolve(), options.rerank_bits) if options.rerank else None,
            learned=LearnedJob(self._words_folder.resolve(), options.learned_budget)
            if options.learned
            else None,
        )
        plan = plan_shards(corpus.store.count, options.shard_documents)
        with (
            self._work.counting_kills("encode") as kills,
            self._stages.stage("encode", corpus.store.count, "documents") as advance,
        ):
            runner = make_runner(options, job, kills)
            encoded = encode_shards(
                runner,
                plan,
                folder,
                dimensions,
                advance,
                has_states=job.states is not None,
                has_learned=job.learned is not None,
            )
        return encoded, encoded.vectors(folder, dimensions)

    def states(self, encoded: Encoded) -> Step | None:
        """Term representations for a re-ranker; None without one."""
        if self._states is None:
            return None
        with self._step("states") as (step, _):
            if not step.is_done:
                folder = step.folder / STATES_FOLDER
                header = encoded.write_states(self._work.path / SHARDS_FOLDER, folder, self._states)
                step.values = {"rerank": describe_states(header, folder)}
        return step

    @property
    def _words_folder(self) -> Path:
        return self._work.path / "learned-words" / LEARNED_WORDS_FOLDER

    def learned(self, encoded: Encoded, corpus: Corpus) -> Step | None:
        """The learned impacts of the documents that are left; None without."""
        if not self._options.learned:
            return None
        with self._step("learned") as (step, _):
            if not step.is_done:
                side = WordSide.load(self._words_folder)
                head = LearnedHead.load(self._model.folder / LEARNED_HEAD)
                scorer = WordScorer(side, head.cut, self._options.learned_budget)
                header = build_learned(
                    step.folder / LEARNED_FOLDER,
                    encoded.learned_words(self._work.path / SHARDS_FOLDER),
                    side.words,
                    scorer.unit,
                    scorer.budget,
                    scorer.best_of,
                    None if corpus.passages is None else corpus.passages.first,
                )
                step.values = {"learned": describe_learned(header, step.folder, len(side.words))}
        return step

    def without(self, corpus: Corpus, poison: dict[int, str], cutter: PassageCutter | None) -> Corpus:
        """The corpus without documents that cannot be encoded, which become rejects.

        The term table still counts them: with another one, every vector would have to be made again.

        Raises:
            BuildError: if there are too many rejects, or no document.
        """
        if not poison:
            return corpus
        before, options = corpus.step, self._options
        with self._step("poison", corpus.store.count, "documents") as (step, advance):
            if not step.is_done:
                before.link(step.folder, REJECTS_FILE, CORPUS_TERMS, CORPUS_STEMS)
                _unlink_from(before.folder / REJECTS_FILE, step.folder / REJECTS_FILE)
                with (
                    RejectLog(step.folder / REJECTS_FILE, before.values["rejects"]) as rejects,
                    DocumentWriter(step.folder / DOCUMENTS_FILE) as writer,
                ):
                    for row, document in enumerate(corpus.store.scan()):
                        if row not in poison:
                            writer.add(document)
                        else:
                            start = " ".join(text for texts in document.fields.values() for text in texts)
                            reason = f"cannot be encoded: {poison[row]}"
                            rejects.add(None, None, reason, start.encode(), document.id)
                        advance(1)
                    rejects.require_share(writer.count, options.max_reject_share, self._keep_rejects)
                step.values = {**before.values, "documents": writer.count, "rejects": rejects.counts}
        return self._cut(self._corpus(step), cutter, "poison-passages")

    def columns(self, corpus: Corpus) -> Step:
        """Metadata as columns; `values` has what the report says of them."""
        with self._step("columns") as (step, _):
            if not step.is_done:
                step.values = {"columns": describe_columns(build_columns(corpus.store, step.folder))}
        return step

    def lexical(self, corpus: Corpus, terms: TermTable) -> Step | None:
        """The lexical index, from a second reading of the documents: only now their words are counted."""
        if not self._options.lexical:
            return None
        own = self._model.preprocessor
        with self._step("lexical", corpus.store.count, "documents") as (step, advance):
            if not step.is_done:
                words = (lexical_words(each, own.schema, own.pieces) for each in corpus.store.scan())
                header = build_lexical(
                    step.folder / IMPACTS_FOLDER,
                    _counted(words, advance),
                    corpus.stats.terms,
                    self._stems(corpus, step.folder / STEMS_FOLDER) if self._has_stems else terms,
                    analyzer=self._analyzer,
                    on_words=partial(build_spelling, step.folder / SPELLING_FOLDER),
                )
                if self._is_packed(header.documents):
                    header = pack_lists(step.folder / IMPACTS_FOLDER, header)
                step.values = {"lexical": describe_lexical(header, step.folder)}
        return step

    def _is_packed(self, documents: int) -> bool:
        wanted = self._options.impacts
        return documents >= PACKED_FROM if wanted == "auto" else wanted == "packed"

    def _stems(self, corpus: Corpus, folder: Path) -> TermTable:
        """The table that the idf of stems comes from, as `terms` is that of words; deltas need it too."""
        own = self._analyzer.table(self._model.preprocessor.terms)
        table = select_terms(self._options.term_stats, corpus.stats.stems, own)
        table.save(folder)
        return table

    def index(
        self, vectors: VectorRows, kind: IndexKind, corpus: Corpus, columns: Step, terms: TermTable
    ) -> Step:
        """The dense index: a file, or a collection of a server that a file names."""
        total = vectors.shape[0] if self._options.store else None
        with self._step("index", total, "vectors") as (step, advance):
            if not step.is_done and self._options.store:
                insert = make_insert(
                    self._options, vectors, columns.folder, corpus.store.count, self._passages_of(corpus)
                )
                store = VectorStore(self._options.store, self._work.path / "import", insert)
                described = Columns.open(columns.folder, corpus.store.count)
                binding = (self._model.hash, terms.hash)
                store.write(step.folder, vectors, kind, binding, described, corpus.passages, advance)
            elif not step.is_done:
                build_dense(vectors, kind, self._options.device).save(step.folder / DENSE_FILE)
        return step

    @staticmethod
    def _passages_of(corpus: Corpus) -> Path | None:
        """Where the map of passages lies; None where rows are documents."""
        return None if corpus.cut is None else corpus.cut.folder / PASSAGES_FOLDER

    def recall(self, index: Step, vectors: VectorRows, corpus: Corpus, terms: TermTable) -> dict[str, Any]:
        """Recall of what is served: the index is opened from its file."""
        options = self._options
        with self._step("recall") as (step, _):
            if not step.is_done:
                encoder: Encoder = self._model.encoder(
                    "query", options.device, options.thread_count, batch_tokens(options.device)
                )
                dense = open_dense(index.folder)
                preprocessor = self._model.with_terms(terms)
                recall = measure_recall(dense, vectors, corpus.store, preprocessor, encoder)
                step.values = {"recall": asdict(recall), "dimensions": dense.dimensions}
        values: dict[str, Any] = step.values["recall"]
        return values

    def _corpus(self, step: Step) -> Corpus:
        values = step.values
        terms = TermTable.load(step.folder / CORPUS_TERMS)
        stems = TermTable.load(step.folder / CORPUS_STEMS) if self._has_stems else terms
        stats = CorpusStats(values["documents"], values["read_bytes"], terms, stems)
        return Corpus(step, stats, DocumentStore(step.folder / DOCUMENTS_FILE), values["rejects"]["faults"])

    def _cut(self, corpus: Corpus, cutter: PassageCutter | None, name: str) -> Corpus:
        if cutter is None:
            return corpus
        with self._step(name, corpus.store.count, "documents") as (step, advance):
            if not step.is_done:
                cut_documents(corpus.store, cutter, step.folder, advance)
        passages = PassageMap.open(step.folder / PASSAGES_FOLDER)
        return replace(corpus, passages=passages, cut=step)

    @contextmanager
    def _step(self, name: str, total: int | None = None, unit: str = "") -> Iterator[tuple[Step, Advance]]:
        """A step as a stage, with a function that is told what was done."""
        with self._work.step(name) as step:
            if step.is_done:
                took = step.values["stage"]
                self._stages.done_before(name, took["seconds"], took["peak_memory_bytes"])
                yield step, lambda amount: None
                return
            with self._stages.stage(name, total, unit) as advance:
                yield step, advance
            peak = self._stages.peaks[name]
            step.values["stage"] = {"seconds": self._stages.seconds[name], "peak_memory_bytes": peak}


def _counted(documents: Iterable[Iterable[str]], advance: Advance) -> Iterator[Iterable[str]]:
    for document in documents:
        yield document
        advance(1)


def _unlink_from(source: Path, link: Path) -> None:
    """Makes a file of its own from a hard link, which must not be written to; without a source, an empty one."""
    data = source.read_bytes() if source.is_file() else b""
    link.unlink(missing_ok=True)
    link.write_bytes(data)
