"""An open index version: everything that a search needs, verified to belong together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.artifact import Manifest, verify
from glow.errors import MismatchError
from glow.index.calibration import UNCALIBRATED, Calibrations, load_calibrations
from glow.index.columns import COLUMNS
from glow.index.component import Explained
from glow.index.models import Models, model_parent, open_models
from glow.index.opening import Delta, closed_base, files_of, open_delta
from glow.index.postings import POSTINGS
from glow.index.segment import Key, Segment, View
from glow.index.settings import (
    DEFAULT_FUSION,
    DEFAULT_RERANK_WEIGHT,
    Fusion,
    RerankWeight,
    load_fusion,
    load_rerank_weight,
)
from glow.index.spelling import SPELLING, Speller
from glow.index.vectors import VECTORS
from glow.index.walk import (
    causes_of_refusal,
    counts_of,
    explain_hit,
    info_of,
    join_segments,
    open_segment,
    parts_of,
    view_of,
)
from glow.runtime import Device, Encoder, Explainer, Reranker
from glow.text import Analyzer, Preprocessor

__all__ = ["REPORT_FILE", "Index"]

REPORT_FILE = "report.json"
"""Report of the build: counts, times and sizes."""
PLAIN = Analyzer()
R = TypeVar("R")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Index:
    """One version of an index, immutable and safe to search from many threads.

    `index[VECTORS]` is a component's reader; with a delta, it reads base and delta together.

    Attributes:
        manifest: of the version; `manifest.name` is the version.
        models: of the version.
        base: the open files outside the delta, for `open` of a version that shares some.
        delta: changes since the base; None if there are none.
        view: the components, for searches.
        fusion: default fusion of a hybrid search.
        rerank_weight: weight of a re-ranker's score.
        calibrations: turn a hybrid search's scores into probabilities.
        speller: corrects the words of queries; None in a version without a lexical component.
        refusals: request, such as a retriever -> why it cannot be served, and how to build an index that can; "" if it can.
    """

    manifest: Manifest
    models: Models
    base: Segment
    delta: Delta | None
    view: View
    fusion: Fusion = DEFAULT_FUSION
    rerank_weight: RerankWeight = DEFAULT_RERANK_WEIGHT
    speller: Speller | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)
    calibrations: Calibrations = UNCALIBRATED

    @classmethod
    def open(
        cls, folder: Path, device: Device = "cpu", threads: int = 1, like: "Index | None" = None
    ) -> "Index":
        """Verifies every file of a version, then opens it.

        Args:
            folder: the version's directory.
            device: of the query encoder and the vectors.
            threads: of one encoding.
            like: an open index, on the same device with as many threads. Identical files (hard links) of both versions are neither
                read nor opened again; their readers are shared.

        Raises:
            ArtifactError: if a file is missing or damaged (the message names it), or components do not belong together.
            DeviceError: if the device is missing, or the version has a delta and the device is a GPU.
        """
        manifest = verify(folder, "index", dict(like.models.files.values()) if like is not None else None)
        files = files_of(folder, manifest)
        models = open_models(folder, manifest, files, device, threads, like.models if like else None)
        shared = like.base if like is not None and like.models.place == models.place else None
        delta = open_delta(folder, manifest, files)
        base = open_segment(closed_base(folder, manifest, files, delta, device), shared)
        if base[VECTORS].dimensions != models.encoder.dimensions:
            raise MismatchError(
                f"index {manifest.name}: vectors of {base[VECTORS].dimensions} dimensions, "
                f"a query tower of {models.encoder.dimensions}; rebuild the index"
            )
        if delta is None:
            view = view_of(base)
        else:
            view = join_segments(base, delta.segment, delta.rows.tombstones, delta.rows.order)
        _check_counts(manifest, view, "rebuild the index" if delta is None else "roll back to its base")
        fusion, rerank_weight = load_fusion(folder, manifest), load_rerank_weight(folder, manifest)
        return cls(
            manifest,
            models,
            base,
            delta,
            view,
            fusion,
            rerank_weight,
            _speller(models, view),
            causes_of_refusal(view),
            load_calibrations(folder, manifest),
        )

    def holds(self, component: Key[Any, Any]) -> bool:
        """Whether the version has a component."""
        return self.view.holds(component)

    def __getitem__(self, component: Key[Any, R]) -> R:
        """A component's reader.

        Raises:
            MismatchError: if the version lacks the component.
        """
        return self.view[component]

    def with_reader(self, component: Key[Any, R], reader: R) -> "Index":
        """The same index with another reader of a component."""
        readers = {**self.view.readers, component.name: reader}
        return replace(self, view=replace(self.view, readers=readers))

    def info(self) -> Mapping[str, Any]:
        """The components' entries in `/info`."""
        return info_of(self.view)

    def parts(self) -> list[str]:
        """Components besides vectors and documents, as `/info` names them."""
        return parts_of(self.view)

    def explain(self, retriever: str, words: Sequence[str], hit: Explained) -> Mapping[str, Any]:
        """The components' entries in the explanation of a retriever's hit, for the words of a query."""
        return explain_hit(self.view, retriever, words, hit)

    @property
    def version(self) -> str:
        """The version's name."""
        return self.manifest.name

    @property
    def preprocessor(self) -> Preprocessor:
        """The preprocessor with the index's own term statistics."""
        return self.models.preprocessor

    @property
    def encoder(self) -> Encoder:
        """The query encoder."""
        return self.models.encoder

    @property
    def explainer(self) -> Explainer | None:
        """Explains hits; None in a version without explain graphs."""
        return self.models.explainer

    @property
    def reranker(self) -> Reranker | None:
        """Re-ranks hits; None in a version without one."""
        return self.models.reranker

    @property
    def analyzer(self) -> Analyzer:
        """Analyzer of its lexical index; without one, words are terms."""
        return self[POSTINGS].analyzer if self.holds(POSTINGS) else PLAIN

    @property
    def order(self) -> NDArray[np.uint32]:
        """The rank of each row's id in code point order, which breaks ties."""
        return self[COLUMNS].columns.order

    @property
    def model(self) -> str:
        """Name and short hash of the model that built it: `glow-mini@sha256:ab12cd34`."""
        name = model_parent(self.manifest).get("name", "unknown")
        return f"{name}@sha256:{self.manifest.hashes.get('model', '')[:8]}"


def _check_counts(manifest: Manifest, view: View, remedy: str) -> None:
    """Checks that the components' counts are those of the manifest."""
    for name, count in counts_of(view).items():
        expected = manifest.counts.get(name, count)
        if count != expected:
            raise MismatchError(
                f"index {manifest.name}: {count} {name}, {expected} {name} in the manifest; {remedy}"
            )


def _speller(models: Models, view: View) -> Speller | None:
    tables = view.get(SPELLING)
    if tables is None or models.preprocessor.weighting.unit != "word":
        return None
    preprocessor = models.preprocessor
    return Speller(preprocessor.pieces, preprocessor.terms, list(tables), view.get(POSTINGS))
