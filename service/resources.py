"""What the service holds open: the live index behind a reference that is exchanged whole.

A request takes the reference once and keeps it to its end, so an exchange never changes what a running request sees;
the old index goes when its last reader leaves.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from glow.artifact import IndexRoot
from glow.errors import MismatchError, QueryError
from glow.runtime import Encoder, Model
from glow.search import Index, SearchParams
from glow.text.highlight import Highlighting
from service.errors import DrainingError, NotReadyError
from service.metrics import Metrics
from service.pipeline import HighlightCall, SearchCall, search
from service.settings import Settings

__all__ = ["Resources"]

_logger = logging.getLogger(__name__)
# Where the index holds no usable text; about as long as real queries are.
_WARMUP_TEXT = "how do honey bees find their way home from a distant field"
_WARMUP_WORDS = 12


class Resources:
    """The live index and whether the service may be sent requests.

    Args:
        settings: where the index is and how to open it.
        metrics: told which index is live.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._live: Index | None = None
        self.document_encoder: Encoder | None = None
        self._draining = False

    def load(self) -> Index:
        """Opens the version that CURRENT names, warms it up and makes it the live one.

        Blocks for as long as checksums and loading take. On any error the live index stays as it was.

        Raises:
            ArtifactError, ConfigError: missing, damaged, or parts that do not belong together.
            DeviceError: the device is not there.
        """
        started = time.perf_counter()
        root = IndexRoot(self._settings.index_root)
        folder = root.folder(root.current())
        index = Index.open(folder, self._settings.device, self._settings.encode_threads)
        _warm_up(index, self._settings.warmup_queries)
        if self._settings.document_model:
            self.document_encoder = _document_encoder(self._settings, index)
        self._live = index
        self._metrics.use(index)
        self._metrics.ready.set(0 if self._draining else 1)
        fields = {
            "index": index.version,
            "model": index.model,
            "documents": index.documents.count,
            "seconds": round(time.perf_counter() - started, 3),
        }
        _logger.info("ready", extra={"fields": fields})
        return index

    def live(self) -> Index:
        """The live index.

        Raises:
            NotReadyError: it is not loaded and warmed up yet.
        """
        if self._live is None:
            raise NotReadyError("the index is still loading; try again in a moment")
        return self._live

    def drain(self) -> None:
        """Says through `/readyz` that no new requests should come; those that come are still answered."""
        self._draining = True
        self._metrics.ready.set(0)

    def require_open(self) -> None:
        """Checks that the service is not about to stop.

        Raises:
            DrainingError: it is.
        """
        if self._draining:
            raise DrainingError("the service is about to stop; send requests to another one")

    def check(self) -> Index:
        """Asks every resource for an answer; blocks for about the time of one search.

        Raises:
            DrainingError: the service is about to stop.
            NotReadyError: no index yet, or a resource does not answer; its name is in the message.
        """
        self.require_open()
        index = self.live()
        probes: dict[str, Callable[[], object]] = {
            "encoder": lambda: index.encoder.run([index.preprocessor.query(_WARMUP_TEXT)]),
            "documents": lambda: index.documents.rows([0] if index.documents.count else []),
            "search": lambda: search(index, _call(_WARMUP_TEXT)),
        }
        failed = [name for name, probe in probes.items() if not _answers(name, probe)]
        if failed:
            raise NotReadyError(f"no answer from: {', '.join(failed)}; the log says why")
        return index


def _answers(name: str, probe: Callable[[], object]) -> bool:
    try:
        probe()
    except Exception:  # whatever it is, readiness reports which resource, and the log has the cause
        _logger.exception("resource %s does not answer", name)
        return False
    return True


def _document_encoder(settings: Settings, index: Index) -> Encoder:
    """The document tower of the model that built the index.

    Raises:
        MismatchError: it is another model's.
    """
    model = Model.open(Path(settings.document_model))
    if model.hash != index.manifest.hashes.get("model"):
        raise MismatchError(
            f"document_model is {model.label}, the index was built by {index.model}; give the same model"
        )
    return model.encoder("document", settings.device, settings.encode_threads)


def _warm_up(index: Index, queries: int) -> None:
    """Runs queries made of stored texts: loads code, fills caches, pages in the vectors."""
    rows = range(min(queries, index.documents.count))
    texts = [_WARMUP_TEXT] * (queries - len(rows))
    for document in index.documents.rows(list(rows)) if rows else []:
        values = [text for texts_of_field in document.fields.values() for text in texts_of_field]
        texts.append(" ".join(values[0].split()[:_WARMUP_WORDS]) if values else _WARMUP_TEXT)
    for text in texts:
        try:
            search(index, _call(text))
            search(index, _full_call(index, text))
        except QueryError:  # a stored text without a word is no query, and no reason not to start
            continue


def _full_call(index: Index, text: str) -> SearchCall:
    """All that a page asks for but reasons, whose towers are opened by the first who wants them."""
    highlight = HighlightCall(index.preprocessor.schema.names, Highlighting())
    call = replace(_call(text), highlight=highlight)
    return call if index.impacts is None else replace(call, retriever="hybrid")


def _call(text: str) -> SearchCall:
    return SearchCall(text, top_k=10, offset=0, candidates=10, params=SearchParams())
