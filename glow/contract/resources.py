"""Responses of the routes other than search: the service itself, documents, writes, and vectors in OpenAI's format."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from glow.contract.record import Record, one_of, says

__all__ = [
    "AdminResult", "DocumentResult", "Embedding", "EmbeddingsResult", "FeedbackResult", "FieldInfo", "IndexInfo", "IndexName",
    "Info", "ModelInfo", "ModelsResult", "OperationResult", "Reject", "Usage", "Workers",
]  # fmt: skip


class IndexName(Record, frozen=True):
    """Index version and model."""

    version: Annotated[str, says("Name of the index version.")]
    model: Annotated[str, says("The model's name and hash.")]


class IndexInfo(IndexName, frozen=True):
    """Index version and model, its components, and what each says of itself."""

    created: Annotated[str, says("When it was built.")] = ""
    built_by: Annotated[str, says("Version of GLOW that built it.")] = ""
    hashes: Annotated[dict[str, str], says("Hashes of its parents.")] = msgspec.field(default_factory=dict)
    components: Annotated[tuple[str, ...], says("Components besides vectors and documents.")] = ()
    documents: Annotated[int, says("Number of documents.")] = 0
    dimensions: Annotated[int, says("Dimensions of a vector.")] = 0
    columns: Annotated[dict[str, Any] | None, says("Metadata fields and their properties.")] = None


class FieldInfo(Record, frozen=True):
    """A text field."""

    name: Annotated[str, says("Its name.")]
    kind: Annotated[str | None, says("How its text is read.")] = None
    tokens: Annotated[int | None, says("Most tokens that the encoder reads.")] = None
    list: Annotated[bool | None, says("Whether responses always show it as a list.")] = None


class Workers(Record, frozen=True):
    """The workers of this service."""

    count: Annotated[int, says("Number of workers.")]
    following: Annotated[int, says("Workers that serve the live version.")]
    refusing: Annotated[int, says("Workers that refused the version that CURRENT names.")]


class Info(Record, frozen=True):
    """The service, its index and its settings."""

    version: Annotated[str, says("Version of GLOW.")]
    index: IndexInfo
    fields: Annotated[tuple[FieldInfo, ...], says("Text fields.")]
    retrievers: Annotated[tuple[str, ...], says("Valid values of `retriever`.")]
    name: Annotated[str, says("Always `glow`.")] = ""
    device: Annotated[str, says("Device of the encoders.")] = ""
    providers: Annotated[tuple[str, ...], says("Execution providers of ONNX Runtime.")] = ()
    search_threads: Annotated[int, says("Threads that search.")] = 0
    workers: Workers | None = None
    feedback: Annotated[bool, says("Whether feedback is logged.")] = False
    settings: Annotated[dict[str, Any], says("Settings, without secrets.")] = msgspec.field(
        default_factory=dict
    )


class AdminResult(Record, frozen=True):
    """The live version and the workers."""

    previous: Annotated[str, says("Version that was live before the request.")]
    live: IndexName
    workers: Workers


class FeedbackResult(Record, frozen=True):
    """Accepted feedback."""

    status: Annotated[str, one_of("noted"), says("Always `noted`.")]


class DocumentResult(Record, frozen=True):
    """A document."""

    id: Annotated[str, says("The document's id.")]
    fields: Annotated[dict[str, str | tuple[str, ...]], says("Text fields that are not empty.")]
    metadata: Annotated[Mapping[str, Any], says("Metadata of the document.")]
    index: Annotated[IndexName, says("Index with the document.")]


class Reject(Record, frozen=True):
    """A rejected document."""

    place: Annotated[int, says("Position in the request, from 0.")]
    id: Annotated[str | None, says("Its id, if it could be read.")]
    reason: Annotated[str, says("Why it was rejected.")]


class OperationResult(Record, frozen=True):
    """A write and its state."""

    operation: Annotated[str, says("Operation id, for `GET /operations/{id}`.")]
    state: Annotated[
        str,
        one_of("waiting", "applied", "visible", "failed"),
        says("`applied`: a version has it; `visible`: all replicas serve that version."),
    ]
    version: Annotated[str, says("Index version with the write.")] = ""
    previous: Annotated[str, says("Version before a deletion by filter, for `glow rollback`.")] = ""
    counts: Annotated[dict[str, int], says("Counts of the batch that applied it.")] = msgspec.field(
        default_factory=dict
    )
    reason: Annotated[str, says("Why the write failed.")] = ""
    accepted: Annotated[int | None, says("Documents accepted.")] = None
    rejected: Annotated[int | None, says("Documents rejected.")] = None
    rejects: Annotated[tuple[Reject, ...] | None, says("The first 100 rejected documents.")] = None


class Embedding(Record, frozen=True):
    """A vector."""

    object: Annotated[str, one_of("embedding"), says("Always `embedding`.")]
    index: Annotated[int, says("Position of the text, from 0.")]
    embedding: Annotated[tuple[float, ...] | str, says("The vector: numbers, or base64.")]


class Usage(Record, frozen=True):
    """Number of tokens."""

    prompt_tokens: Annotated[int, says("Tokens encoded.")]
    total_tokens: Annotated[int, says("The same number.")]
    truncated: Annotated[tuple[int, ...], says("Positions of texts that exceeded the token limit.")]


class EmbeddingsResult(Record, frozen=True):
    """Vectors of texts."""

    object: Annotated[str, one_of("list"), says("Always `list`.")]
    data: Annotated[tuple[Embedding, ...], says("Vectors, in the order of the texts.")]
    model: Annotated[str, says("The model's name and hash.")]
    usage: Annotated[Usage, says("Number of tokens.")]


class ModelInfo(Record, frozen=True):
    """An encoder."""

    id: Annotated[str, says("Value for `model` in `POST /v1/embeddings`.")]
    object: Annotated[str, one_of("model"), says("Always `model`.")]
    created: Annotated[int, says("Build time of the index, as Unix time.")]
    owned_by: Annotated[str, says("Always `glow`.")]
    root: Annotated[str, says("The model's name and hash.")]


class ModelsResult(Record, frozen=True):
    """Encoders of this service."""

    object: Annotated[str, one_of("list"), says("Always `list`.")]
    data: Annotated[tuple[ModelInfo, ...], says("Encoders that this service has.")]
