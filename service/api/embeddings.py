"""`POST /v1/embeddings`, in OpenAI's shape: vectors of the towers, for those who search elsewhere."""

import asyncio
import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from glow.errors import QueryError
from glow.records import Document
from glow.runtime import Encoder
from glow.search import Index
from glow.text import WeightedTokens
from glow_service.api.body import read_object
from glow_service.api.context import context_of, leaving_cancels
from glow_service.api.lanes import enter_lane
from glow_service.api.responses import json_response
from glow_service.api.schemas import EmbeddingsBody
from glow_service.errors import Fault, NotAvailableError, RequestError
from glow_service.live import OpenVersion
from glow_service.search import (
    MAX_FAULTS,
    MOST_PLAIN,
    Deadline,
    Lane,
    StageClock,
    faults_of,
    price_of_texts,
    query_tokens,
)
from glow_service.settings import Settings
from glow_service.state import service_of

__all__ = ["post_embeddings"]

Vector = NDArray[np.float32]


async def post_embeddings(request: Request) -> Response:
    """Vectors of queries or of documents, L2-normalised, in the order of the texts."""
    service = service_of(request)
    context = context_of(request.scope)
    version = service.resources.live_version()
    index = version.index
    context.index_version = index.version
    settings = service.settings
    limit = settings.batch_bytes
    body = _parse(await read_object(request, limit, context.deadline, settings.max_items), settings, index)
    texts = [body.input] if isinstance(body.input, str) else body.input
    encoder = _encoder(version, body.input_type)
    price = price_of_texts(texts, body.input_type)
    lane = enter_lane(service, context, request.scope, price, is_bulk=len(texts) > 1 or price > MOST_PLAIN)
    with leaving_cancels(context):
        sequences = await lane.pool.run_by(
            context.deadline, _sequences, index, texts, body.input_type, StageClock(context.deadline)
        )
        for _ in filter(None, (tokens.truncated for tokens in sequences)):
            service.metrics.truncate(body.input_type)
        vectors = await _encode(lane, encoder, sequences, context.deadline)
    return json_response(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": place, "embedding": _shown(vector, body.encoding_format)}
                for place, vector in enumerate(vectors)
            ],
            "model": index.model,
            "usage": {
                "prompt_tokens": sum(map(len, sequences)),
                "total_tokens": sum(map(len, sequences)),
                "truncated": [place for place, tokens in enumerate(sequences) if tokens.truncated],
            },
        }
    )


def _parse(value: dict[str, Any], settings: Settings, index: Index) -> EmbeddingsBody:
    try:
        body = EmbeddingsBody.model_validate(value)
    except ValidationError as error:
        raise faults_of(error, value) from error
    faults = []
    count = 1 if isinstance(body.input, str) else len(body.input)
    if not 1 <= count <= settings.batch_limit:
        faults.append(Fault("/input", f"expected 1 to {settings.batch_limit} texts, found {count}"))
    longest = settings.max_query_chars if body.input_type == "query" else settings.max_body_bytes
    texts = [body.input] if isinstance(body.input, str) else body.input
    faults += [
        Fault(f"/input/{place}", f"{len(text)} characters, expected at most {longest}")
        for place, text in enumerate(texts)
        if len(text) > longest
    ][:MAX_FAULTS]
    if body.dimensions not in (None, index.dense.dimensions):
        detail = f"this model has {index.dense.dimensions} dimensions, found {body.dimensions}"
        faults.append(Fault("/dimensions", detail))
    if body.model not in (None, index.model, index.model.partition("@")[0]):
        faults.append(Fault("/model", f"this index was built by {index.model!r}, found {body.model!r:.80}"))
    if faults:
        raise RequestError("; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults), faults)
    return body


def _encoder(version: OpenVersion, input_type: str) -> Encoder:
    if input_type == "query":
        return version.index.encoder
    if version.document_encoder is None:
        detail = "this service holds no document tower; start it with --document-model"
        raise NotAvailableError(detail, [Fault("/input_type", detail)])
    return version.document_encoder


def _sequences(index: Index, texts: list[str], input_type: str, clock: StageClock) -> list[WeightedTokens]:
    body = index.preprocessor.schema.body
    sequences = []
    for place, text in enumerate(texts):
        clock.check()
        if input_type == "query":
            sequences.append(_query(index, text, place))
        else:
            sequences.append(index.preprocessor.document(Document("", {body: (text,)}, {})))
    return sequences


def _query(index: Index, text: str, place: int) -> WeightedTokens:
    try:
        if "\0" in text:
            raise QueryError("the query holds a NUL character; remove it")
        return query_tokens(index.preprocessor, text)
    except QueryError as error:
        raise RequestError(f"/input/{place}: {error}", [Fault(f"/input/{place}", str(error))]) from error


async def _encode(
    lane: Lane, encoder: Encoder, sequences: list[WeightedTokens], deadline: Deadline
) -> list[Vector]:
    return await asyncio.gather(
        *(lane.batcher.run(encoder, tokens, lambda _, vector: vector, deadline) for tokens in sequences)
    )


def _shown(vector: Vector, encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(value) for value in vector]
