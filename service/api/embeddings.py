"""`POST /v1/embeddings`, in OpenAI's format: vectors of the encoders, for use in other systems."""

import base64
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from glow.contract import Embedding, EmbeddingsResult, ModelInfo, ModelsResult, Usage
from glow.errors import Fault, QueryError
from glow.index import Index
from glow.index.vectors import VECTORS
from glow.records import Document
from glow.runtime import Encoder
from glow.text import WeightedTokens, batches_by_length
from glow_service import errors
from glow_service.api.body import EmbeddingsRequest
from glow_service.api.context import context_of, json_response, leaving_cancels
from glow_service.api.routes import BODY_ERRORS, route
from glow_service.errors import NotAvailableError
from glow_service.live.resources import OpenVersion
from glow_service.search.clock import StageClock
from glow_service.search.request import MAX_FAULTS, fault, refusal
from glow_service.search.run import query_tokens
from glow_service.settings import Settings
from glow_service.state import service_of

TOWERS = ("query", "document")

Vector = NDArray[np.float32]


@route(
    "POST",
    "/v1/embeddings",
    errors=(*BODY_ERRORS, errors.NotAvailableError, errors.OverloadedError, errors.NotReadyError),
    answer=EmbeddingsResult,
    body=EmbeddingsRequest,
    tag="embeddings",
    example={"input": ["how do bees find home"], "input_type": "query"},
    most_bytes=lambda settings: settings.batch_bytes,
)
async def post_embeddings(request: Request, body: EmbeddingsRequest) -> Response:
    """Encodes queries or documents as L2-normalized vectors."""
    service = service_of(request)
    context = context_of(request.scope)
    version = service.resources.live_version()
    index = version.index
    context.index_version = index.version
    texts = [body.input] if isinstance(body.input, str) else body.input
    input_type = _input_type(body, index)
    _check(body, texts, input_type, service.settings, index)
    encoder = _encoder(version, input_type)
    context.hold(service.pool.expensive)
    service.access.charge(request.scope, context.key, len(texts))
    with leaving_cancels(request):
        sequences, vectors = await service.pool.run_expensive(
            context.deadline, _encode, encoder, index, texts, input_type, StageClock(context.deadline)
        )
    for _ in filter(None, (tokens.truncated for tokens in sequences)):
        service.metrics.truncate(input_type)
    data = tuple(
        Embedding("embedding", place, _shown(vector, body.encoding_format))
        for place, vector in enumerate(vectors)
    )
    total = sum(map(len, sequences))
    cut = tuple(place for place, tokens in enumerate(sequences) if tokens.truncated)
    return json_response(EmbeddingsResult("list", data, index.model, Usage(total, total, cut)))


def _check(
    body: EmbeddingsRequest, texts: list[str], input_type: str, settings: Settings, index: Index
) -> None:
    faults = []
    if not 1 <= len(texts) <= settings.max_batch_queries:
        faults.append(
            Fault("/input", f"expected 1 to {settings.max_batch_queries} texts, found {len(texts)}")
        )
    longest = settings.max_query_chars if input_type == "query" else settings.max_body_bytes
    faults += [
        Fault(f"/input/{place}", f"{len(text)} characters, expected at most {longest}")
        for place, text in enumerate(texts)
        if len(text) > longest
    ][:MAX_FAULTS]
    if body.dimensions not in (None, index[VECTORS].dimensions):
        detail = f"this model has {index[VECTORS].dimensions} dimensions, found {body.dimensions}"
        faults.append(Fault("/dimensions", detail))
    if body.model is not None and _model_of(body.model)[0] not in (index.model, _short_name(index)):
        faults.append(Fault("/model", f"this index was built by {index.model!r}, found {body.model!r:.80}"))
    if faults:
        raise refusal(faults)


def _input_type(body: EmbeddingsRequest, index: Index) -> str:
    """The encoder, from `input_type` or the suffix of the model's name."""
    named = _model_of(body.model or "")[1]
    if body.input_type is None and not named:
        raise fault(
            "/input_type", f"expected 'query' or 'document', or a model such as {_short_name(index)}:query"
        )
    if named and body.input_type not in (None, named):
        detail = f"found {body.input_type!r}, and a model that ends in {named!r}; remove one of them"
        raise fault("/input_type", detail)
    return body.input_type or named


def _model_of(text: str) -> tuple[str, str]:
    """A model's name, and the encoder that its suffix names, or ""."""
    name, _, tower = text.rpartition(":")
    return (name, tower) if name and tower in TOWERS else (text, "")


def _short_name(index: Index) -> str:
    return index.model.partition("@")[0]


@route("GET", "/v1/models", errors=(errors.NotReadyError,), answer=ModelsResult, tag="embeddings")
async def get_models(request: Request) -> Response:
    """Lists the encoders, in the format of OpenAI's API."""
    version = service_of(request).resources.live_version()
    index = version.index
    context_of(request.scope).index_version = index.version
    towers = TOWERS if version.document_encoder is not None else TOWERS[:1]
    created = int(datetime.fromisoformat(index.manifest.created).timestamp())
    name, root = _short_name(index), index.model
    models = tuple(ModelInfo(f"{name}:{tower}", "model", created, "glow", root) for tower in towers)
    return json_response(ModelsResult("list", models))


def _encoder(version: OpenVersion, input_type: str) -> Encoder:
    if input_type == "query":
        return version.index.encoder
    if version.document_encoder is None:
        detail = "this service has no document encoder; start it with --document-model"
        raise NotAvailableError(detail, [Fault("/input_type", detail)])
    return version.document_encoder


def _encode(
    encoder: Encoder, index: Index, texts: list[str], input_type: str, clock: StageClock
) -> tuple[list[WeightedTokens], Vector]:
    """The texts as the encoder reads them, and their vectors, float32 [n, D]; runs in a thread."""
    body = index.preprocessor.schema.body
    sequences = []
    for place, text in enumerate(texts):
        clock.check()
        if input_type == "query":
            sequences.append(_query(index, text, place))
        else:
            sequences.append(index.preprocessor.document(Document("", {body: (text,)}, {})))
    vectors = np.empty((len(texts), encoder.dimensions), np.float32)
    for rows in batches_by_length([len(sequence) for sequence in sequences], encoder.batch_tokens):
        clock.check()
        vectors[rows] = encoder.run([sequences[row] for row in rows])
    return sequences, vectors


def _query(index: Index, text: str, place: int) -> WeightedTokens:
    try:
        if "\0" in text:
            raise QueryError("the query contains a NUL character; remove it")
        return query_tokens(index.preprocessor, text)
    except QueryError as error:
        raise fault(f"/input/{place}", str(error)) from error


def _shown(vector: Vector, encoding: str) -> str | tuple[float, ...]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return tuple(vector.tolist())
