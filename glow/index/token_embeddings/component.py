"""Token embeddings as a component of an index: the stored part of re-ranking."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glow.artifact import RERANK_WEIGHT_FILE, RERANKER_FOLDER, RERANKER_SHAPE, open_reranker, reranker_files
from glow.errors import MismatchError
from glow.index.component import Asked, ComponentOptions, RowComponent, Rules
from glow.index.corpus import Corpus
from glow.index.segment import MergeSource, Segment
from glow.index.segments import BaseAndDelta
from glow.index.token_embeddings.codes import CodedStates
from glow.index.token_embeddings.encode import StatesJob, coded_of, states_header
from glow.index.token_embeddings.format import STATES_FILES, STATES_FOLDER, STATES_HEADER, StatesHeader
from glow.index.token_embeddings.joined import SegmentedStates
from glow.index.token_embeddings.store import TokenEmbeddingStore, TokenEmbeddingsWriter
from glow.index.token_embeddings.view import StatesView, StoredStates
from glow.options import option
from glow.runtime import RerankerShape

__all__ = ["TOKEN_EMBEDDINGS", "TokenEmbeddings", "TokenEmbeddingsOptions", "TokenEmbeddingsRules"]


class TokenEmbeddingsOptions(ComponentOptions):
    """The re-ranker, and how its token embeddings are stored."""

    rerank: Path | None = option(
        None,
        "Re-ranker directory. Its token embeddings of all documents are stored, for searches with `rerank`.",
        metavar="DIR",
    )
    rerank_bits: Literal[16, 8, 4] = option(4, "Bits per number of the re-ranker's token embeddings.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEmbeddingsRules(Rules):
    """The re-ranker, and how its token embeddings are stored.

    Attributes:
        header: of the store, with counts of 0.
        folder: the re-ranker's directory, absolute.
        copied: files of the re-ranker to copy into a new index.
    """

    header: StatesHeader
    folder: Path
    copied: tuple[str, ...] = ()


class TokenEmbeddings(
    RowComponent[StoredStates, StatesView, TokenEmbeddingsRules, TokenEmbeddingsOptions, CodedStates]
):
    """Token embeddings of every document or passage, and in a new index a copy of their re-ranker."""

    name = "token_embeddings"
    part = "rerank"
    label = "term representations"
    stage = "states"
    per = "vector"
    paths = (f"{STATES_FOLDER}/",)
    stays = (f"{RERANKER_FOLDER}/", RERANK_WEIGHT_FILE)
    options = TokenEmbeddingsOptions

    def rules(self, options: TokenEmbeddingsOptions, asked: Asked) -> TokenEmbeddingsRules | None:
        """With the requested re-ranker, verified."""
        if options.rerank is None:
            return None
        manifest, digest = open_reranker(options.rerank)
        return TokenEmbeddingsRules(
            hashes={"reranker": digest},
            parents={"reranker": {"name": manifest.name, "hash": digest}},
            header=states_header(options.rerank, digest, options.rerank_bits),
            folder=options.rerank.resolve(),
            copied=reranker_files(manifest.files),
        )

    def rules_of(self, segment: Segment, *, delta: bool) -> TokenEmbeddingsRules | None:
        """With the version's own copy of the re-ranker, and the same bits."""
        states = segment.get(self)
        if states is None:
            return None
        return TokenEmbeddingsRules(
            hashes={"reranker": states.header.model},
            header=states.header.model_copy(update={"documents": 0, "tokens": 0}),
            folder=(segment.root / RERANKER_FOLDER).resolve(),
        )

    def encoding(self, made: Segment, rules: TokenEmbeddingsRules) -> StatesJob:
        """The re-ranker reads the same texts as the document tower."""
        return StatesJob(rules.folder, rules.header.size, rules.header.bits)

    def blocks(self, corpus: Corpus, rules: TokenEmbeddingsRules) -> Iterator[CodedStates]:
        """The encoded rows."""
        for records in corpus.encoded.records(self.name):
            if len(records.counts):
                yield coded_of(records)

    def stored(self, reader: StoredStates, rows: NDArray[np.int64]) -> CodedStates:
        """Copies the codes without decoding."""
        return reader.coded(rows)

    def write(self, folder: Path, rules: TokenEmbeddingsRules, blocks: Iterator[CodedStates]) -> None:
        """Writes the store in constant memory."""
        with TokenEmbeddingsWriter(folder / STATES_FOLDER, rules.header) as writer:
            for block in blocks:
                writer.add(block)
            writer.close()

    def build(self, corpus: Corpus, rules: TokenEmbeddingsRules) -> None:
        """Writes the store, and copies the re-ranker; a delta uses its base's copy."""
        super().build(corpus, rules)
        if rules.copied:
            target = corpus.made.folder / RERANKER_FOLDER
            target.mkdir()
            for name in rules.copied:
                shutil.copyfile(rules.folder / name, target / name)

    def merge(self, kept: Sequence[MergeSource], rules: TokenEmbeddingsRules, made: Segment) -> None:
        """Copies the codes of live rows; stores of different re-rankers or precisions are refused."""
        for each in kept:
            each.segment[self].require_like(rules.header)
        super().merge(kept, rules, made)

    def report(
        self, made: Segment, rules: TokenEmbeddingsRules, seconds: Mapping[str, float]
    ) -> dict[str, Any]:
        """Parameters and size."""
        return {"rerank": _describe(made[self].header, made.path(STATES_FOLDER))}

    def open(self, segment: Segment) -> TokenEmbeddingStore | None:
        """Opens the store, which must be that of the version's re-ranker."""
        is_base = segment.files is not None and not segment.below
        shape = f"{RERANKER_FOLDER}/{RERANKER_SHAPE}"
        if not segment.has_any(self.paths) and not (is_base and segment.has(shape)):
            return None
        segment.require(*(f"{STATES_FOLDER}/{name}" for name in STATES_FILES))
        if is_base and not segment.has(shape):
            segment.require(f"{RERANKER_FOLDER}/")
        states = TokenEmbeddingStore.open(segment.path(STATES_FOLDER), segment.rows.count(self.per))
        if segment.files is not None:
            _check_reranker(segment, states)
        return states

    def alone(self, reader: StoredStates, segment: Segment) -> StatesView:
        """The store itself."""
        return reader

    def join(self, both: BaseAndDelta[StoredStates]) -> StatesView:
        """Rows of both, if re-ranker and precision are the same."""
        both.delta.require_like(both.base.header)
        return SegmentedStates(both)

    def serves(self, reader: StatesView | None) -> Mapping[str, str]:
        """Re-ranking."""
        lacks = "this index holds no term representations to re-rank with; build it with a re-ranker (glow build --rerank DIR)"
        return {"rerank": lacks if reader is None else ""}

    def info(self, reader: StatesView | None) -> dict[str, Any]:
        """Parameters of the store."""
        stored = None if reader is None else {"bits": reader.header.bits, "size": reader.header.size}
        return {"rerank": stored}


TOKEN_EMBEDDINGS = TokenEmbeddings()


def _check_reranker(segment: Segment, states: TokenEmbeddingStore) -> None:
    """Checks that the re-ranker has the manifest's hash and the store's shape."""
    states.require_model(segment.hashes.get("reranker", "none"))
    place, header = segment.root / RERANKER_FOLDER / RERANKER_SHAPE, states.header
    if not place.is_file():
        raise MismatchError(
            f"index {segment.name} has {segment.below}{STATES_FOLDER}/ and no {RERANKER_FOLDER}/{RERANKER_SHAPE}; {segment.remedy}"
        )
    shape = RerankerShape.load(place)
    expected = (shape.split, shape.size, shape.query_tokens, shape.document_tokens)
    found = (header.split, header.size, header.position_start, header.document_tokens)
    if found != expected:
        raise MismatchError(
            f"{segment.below}{STATES_FOLDER}/{STATES_HEADER} has the layers, numbers, start and longest document {found}, "
            f"the re-ranker has {expected}; {segment.remedy}"
        )


def _describe(header: StatesHeader, folder: Path) -> dict[str, Any]:
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "reranker": header.model,
        "split": header.split,
        "size": header.size,
        "bits": header.bits,
        "tokens": header.tokens,
        "bytes": size_bytes,
        "bytes_per_token": round(size_bytes / max(header.tokens, 1), 1),
    }
