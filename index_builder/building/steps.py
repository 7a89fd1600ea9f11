"""The steps of a build after reading; each uses the files of the earlier steps in the work directory.

Documents that cannot be encoded are known only after encoding, so components are built after it, without them.
This module names no component except the vectors, whose recall it measures.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from glow.index import COMPONENTS, TERMS_FOLDER, AnyComponent, Rows, Rules, Segment
from glow.index.passages import cuts_of
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.runtime import Encoder, Model
from glow.text import TermTable, select_terms
from glow_index_builder.building.corpus import CorpusStats
from glow_index_builder.building.made_corpus import MadeCorpus
from glow_index_builder.building.recall import measure_recall
from glow_index_builder.building.staged import StagedWork
from glow_index_builder.encoding import (
    EncodedShards,
    ShardJob,
    batch_tokens,
    encode_jobs,
    encode_shards,
    make_runner,
    make_spread,
    plan_shards,
)
from glow_index_builder.options import CommonOptions

__all__ = ["NOTES_FOLDER", "Steps"]

SHARDS_FOLDER, NOTES_FOLDER = "shards", "import"


class Steps:
    """The steps that a build applies to its documents.

    Args:
        options: what to build.
        model: the model.
        staged: the earlier steps and their work directory.
        rules: name of each component to build -> its rules.
        version: name of the new version.
    """

    def __init__(
        self,
        options: CommonOptions,
        model: Model,
        staged: StagedWork,
        rules: Mapping[str, Rules],
        version: str,
    ) -> None:
        self._options = options
        self._model = model
        self._staged = staged
        self._rules = rules
        self._version = version

    def terms(self, stats: CorpusStats) -> TermTable:
        """The index's term statistics, read from their files as a service reads them."""
        with self._staged.step("terms") as (step, _):
            if not step.is_done:
                own = self._model.preprocessor.terms
                table = select_terms(self._options.term_stats, stats.terms, own)
                table.save(step.folder / TERMS_FOLDER)
        return TermTable.load(step.folder / TERMS_FOLDER)

    def corpus(self, stats: CorpusStats, terms: TermTable) -> MadeCorpus:
        """The documents that were read, without any component yet."""
        staged, options = self._staged, self._options
        path, folders = staged.work.path, staged.folders
        hashes = {"model": self._model.hash, "terms": terms.hash}
        for rules in self._rules.values():
            hashes |= rules.hashes
        made = Segment(
            name=self._version,
            folder=folders[0],
            root=path,
            below="",
            hashes=hashes,
            parameters=options.parameters(),
            files=None,
            rows=Rows(stats.documents),
            earlier=folders[1:],
        )
        corpus = MadeCorpus(
            model=self._model,
            terms=terms,
            counted=stats.terms,
            counted_terms=stats.stems,
            made=made,
            notes=path / NOTES_FOLDER,
            threads=options.thread_count,
            spread=make_spread(options),
        )
        corpus.open(STORED_FIELDS, folders)
        return corpus

    def prepare(self, corpus: MadeCorpus, *, again: bool = False) -> None:
        """Prepares the components for encoding.

        Args:
            corpus: the documents.
            again: whether documents were left out since an earlier preparation; what depends on documents is redone.

        Raises:
            ConfigError: if a component does not support so many rows.
        """
        for component in self._components():
            # Files outside of the component's paths do not depend on documents.
            if not component.prepares or (again and not corpus.made.has_any(component.paths)):
                continue
            name = f"poison-{component.prepares}" if again else component.prepares
            total = corpus.made.rows.documents
            with self._staged.step(name, total, "documents", component.prepares) as (step, advance):
                if not step.is_done:
                    corpus.write_to(step.folder, self._staged.folders, advance)
                    component.prepare(corpus, self._rules[component.name])
            corpus.open(component, self._staged.folders)
        if not again:
            for component in self._components():
                component.check_rows(corpus.made.rows, self._rules[component.name])

    def encode(self, corpus: MadeCorpus, dimensions: int) -> EncodedShards:
        """Encodes the documents in shards.

        Raises:
            BuildError: if workers cannot start, or shards fail and no document is the cause.
        """
        options, made, staged = self._options, corpus.made, self._staged
        folder, cuts = staged.work.path / SHARDS_FOLDER, cuts_of(made)
        job = ShardJob(
            model=options.model_folder.resolve(),
            store=made.path(DOCUMENTS_FILE).resolve(),
            terms=made.path(TERMS_FOLDER).resolve(),
            cuts=None if cuts is None else cuts.resolve(),
            shards=folder.resolve(),
            device=options.device,
            threads=max(1, options.thread_count // options.workers),
            jobs=encode_jobs(made, self._rules),
        )
        count = made.rows.documents
        plan = plan_shards(count, options.shard_documents)
        with (
            staged.work.counting_kills("encode") as kills,
            staged.stages.stage("encode", count, "documents") as advance,
        ):
            runner = make_runner(options, job, kills)
            return encode_shards(runner, plan, folder, dimensions, advance, job.jobs)

    def build(self, corpus: MadeCorpus) -> None:
        """Builds every component in turn; those that reading or preparing made already are only opened."""
        staged = self._staged
        for component in self._components():
            if not corpus.made.has_any(component.paths):
                per = component.per
                total = None if per == "index" else corpus.made.rows.count(per)
                unit = "vectors" if per == "vector" else "documents"
                with staged.step(component.stage, total, unit) as (step, advance):
                    if not step.is_done:
                        corpus.write_to(step.folder, staged.folders, advance)
                        component.build(corpus, self._rules[component.name])
            corpus.open(component, staged.folders)

    def recall(self, corpus: MadeCorpus) -> dict[str, Any]:
        """Recall of the index to be served, which is opened from its files."""
        options = self._options
        with self._staged.step("recall") as (step, _):
            if not step.is_done:
                encoder: Encoder = self._model.encoder(
                    "query", options.device, options.thread_count, batch_tokens(options.device)
                )
                preprocessor, made = self._model.with_terms(corpus.terms), corpus.made
                vectors = corpus.encoded.vectors()
                found = measure_recall(made[VECTORS], vectors, made[STORED_FIELDS], preprocessor, encoder)
                step.values = {"recall": asdict(found), "dimensions": made[VECTORS].dimensions}
        values: dict[str, Any] = step.values["recall"]
        return values

    def _components(self) -> Iterator[AnyComponent]:
        return (component for component in COMPONENTS if component.name in self._rules)
