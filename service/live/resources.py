"""The open resources of the service: the live index behind one reference.

A request takes the reference once and keeps it to its end, so a swap does not affect running requests. The previous
index closes after its last request.
"""

import ctypes
import gc
import logging
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot
from glow.errors import MismatchError, QueryError
from glow.index import Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import SearchParams
from glow.runtime import Device, Encoder, Model
from glow.search import Reranking, SynonymFile, Synonyms
from glow.text import Highlighting
from glow_service.errors import DrainingError, NotReadyError
from glow_service.search.clock import Deadline
from glow_service.search.plan import HighlightCall, SearchPlan
from glow_service.search.run import SearchSession
from glow_service.telemetry.metrics import Metrics

PROBE_TEXT = "how do honey bees find their way home from a distant field"
"""Query for an index without usable texts; about as long as real queries."""
_WORDS, PROBE_HITS = 12, 10
WARMUP_QUERIES = 4
"""Queries that run before a version is served."""


def warm_up(index: Index) -> None:
    """Runs queries of stored texts with the search page's features, except explanations."""
    rows = range(min(WARMUP_QUERIES, index[STORED_FIELDS].count))
    texts = [PROBE_TEXT] * (WARMUP_QUERIES - len(rows))
    for document in index[STORED_FIELDS].rows(list(rows)) if rows else []:
        values = [text for texts_of_field in document.fields.values() for text in texts_of_field]
        texts.append(" ".join(values[0].split()[:_WORDS]) if values else PROBE_TEXT)
    features: dict[str, Any] = {"highlight": HighlightCall(index.preprocessor.schema.names, Highlighting())}
    if index.reranker is not None:
        features["rerank"] = Reranking(depth=PROBE_HITS)
    if index.holds(POSTINGS):
        features["retriever"] = "hybrid"
    for text in texts:
        try:
            for plan in (probe_call(text), replace(probe_call(text), **features)):
                SearchSession(index, plan).run()
        except QueryError:  # a stored text without a word
            continue


def probe_call(text: str) -> SearchPlan:
    """A minimal search for a text."""
    return SearchPlan(text, top_k=PROBE_HITS, offset=0, candidates=PROBE_HITS, params=SearchParams())


# The index versions in memory: the live one, and previous ones that requests still use. CPython frees a version when
# its last request ends, because only requests reference a previous version. A reference cycle, as of a traceback, may
# keep a version longer; the garbage collector then frees it.

COLLECT_AFTER_S = 5.0
"""How long a replaced version may stay before a garbage collection, and between two of them, in seconds."""
_logger = logging.getLogger(__name__)


class HeldVersions:
    """Counts open versions; only one thread may call `add` and `tidy`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._held: list[weakref.ref[Index]] = []
        self._settled = 0.0

    def add(self, index: Index) -> None:
        """Records a new live version, which replaces the previous one."""
        self._held.append(weakref.ref(index))
        self._metrics.versions_open.set(sum(held() is not None for held in self._held))
        self._settle()

    def tidy(self) -> None:
        """Returns the memory of freed versions; collects garbage if a replaced version stays too long."""
        count = len(self._held)
        self._held = [held for held in self._held if held() is not None]
        if len(self._held) > 1 and time.monotonic() - self._settled > COLLECT_AFTER_S:
            self._settle()
        if len(self._held) < count:
            self._metrics.versions_open.set(len(self._held))
            with suppress(OSError, AttributeError):  # not glibc, which otherwise keeps freed memory
                ctypes.CDLL(None).malloc_trim(0)

    def _settle(self) -> None:
        """Collects garbage, and excludes what remains from later collections: one of the whole program takes 40 ms."""
        self._settled = time.monotonic()
        if len(self._held) > 1:  # a start leaves nothing to collect
            gc.unfreeze()
            gc.collect()
        gc.freeze()


PROBE_MS = 4_000.0
"""Time limit for the search of a check, below the check's own, so that a slow search does not block its thread."""


@dataclass(frozen=True, slots=True)
class OpenVersion:
    """An open index version, with the document encoder if one is configured."""

    index: Index  # verified and warmed up
    document_encoder: Encoder | None = None  # of the model that built the index


class Resources:
    """The live index, and whether the service accepts requests."""

    def __init__(
        self,
        index_root: Path,  # directory of the versions
        metrics: Metrics,  # receives the live index
        device: Device = "cpu",  # device of the query encoder and the vectors
        threads: int = 1,  # threads per search, >= 1
        document_model: str = "",  # model folder whose document encoder is opened with each version; "" for none
        synonyms: str = "",  # file of synonyms; "" for none
    ) -> None:
        self._root, self._metrics = IndexRoot(index_root), metrics
        self._device, self._threads, self._document_model = device, threads, document_model
        self._live: OpenVersion | None = None
        self._synonyms = SynonymFile(synonyms)
        self.draining = False  # whether the service is shutting down
        self.held = HeldVersions(metrics)

    def load(self) -> Index:
        """Opens the version that CURRENT names and makes it live; on an error the live index stays."""
        started = time.perf_counter()
        opened = self.open(self._root.current())
        self.use(opened)
        self.follow_synonyms()
        index, seconds = opened.index, round(time.perf_counter() - started, 3)
        fields = {"index": index.version, "model": index.model, "documents": index[STORED_FIELDS].count}
        _logger.info("ready", extra={"fields": {**fields, "seconds": seconds}})
        return index

    def open(self, version: str) -> OpenVersion:
        """Opens a version: verifies every file, loads it, and runs warm-up queries."""
        folder = self._root.folder(version)
        live = None if self._live is None else self._live.index
        index = Index.open(folder, self._device, self._threads, like=live)
        encoder = self._document_encoder(index) if self._document_model else None
        warm_up(index)
        return OpenVersion(index, encoder)

    def use(self, opened: OpenVersion) -> None:
        """Makes a version live, for all later requests."""
        self._live = opened
        self.held.add(opened.index)
        self._metrics.use(opened.index)
        self._metrics.ready.set(0 if self.draining else 1)

    def live(self) -> Index:
        """The live index."""
        return self.live_version().index

    def live_version(self) -> OpenVersion:
        """The live version, with its document encoder if any."""
        if self._live is None:
            raise NotReadyError("the index is still loading; try again in a moment")
        return self._live

    @property
    def synonyms(self) -> Synonyms:
        """The newest valid synonyms."""
        return self._synonyms.synonyms

    def follow_synonyms(self) -> None:
        """Reads the file of synonyms if it changed; only the thread that loads versions may call it."""
        self._synonyms.refresh(self.live())
        self._metrics.synonyms_refused.set(int(self._synonyms.is_refused))

    def drain(self) -> None:
        """Makes `/readyz` return 503, so that new requests go elsewhere; requests are still answered."""
        self.draining = True
        self._metrics.ready.set(0)

    def require_open(self) -> None:
        """Raises an error if the service is shutting down."""
        if self.draining:
            raise DrainingError("the service is shutting down; send requests to another replica")

    def check(self) -> None:
        """Checks that every resource responds; blocks for about the time of one search."""
        index = self.live()
        until = Deadline.after(time.perf_counter(), PROBE_MS)
        probes: dict[str, Callable[[], object]] = {
            "encoder": lambda: index.encoder.run([index.preprocessor.query(PROBE_TEXT)]),
            "documents": lambda: index[STORED_FIELDS].rows([0] if index[STORED_FIELDS].count else []),
            "search": lambda: SearchSession(index, probe_call(PROBE_TEXT), until).run(),
        }
        failed = []
        for name, probe in probes.items():
            try:
                probe()
            except Exception:  # any error: readiness reports the resource, and the log has the cause
                _logger.exception("resource %s does not respond", name)
                failed.append(name)
        if failed:
            raise NotReadyError(f"no response from: {', '.join(failed)}; see the log for the cause")

    def _document_encoder(self, index: Index) -> Encoder:
        """Opens the document encoder of the model that built the index; reuses the live one for the same model."""
        model_hash, live = index.manifest.hashes.get("model"), self._live
        if live and live.document_encoder and live.index.manifest.hashes.get("model") == model_hash:
            return live.document_encoder
        model = Model.open(Path(self._document_model))
        if model.hash != model_hash:
            raise MismatchError(
                f"document_model is {model.label}, the index was built by {index.model}; give the same model"
            )
        return model.encoder("document", self._device, self._threads)
