"""Running towers and re-rankers without torch: models, ONNX sessions, encoders."""

from glow.runtime.encoder import DEFAULT_BATCH_TOKENS, Encoder
from glow.runtime.explain import ATTENTION, AttentionEncoder, Explainer, Explanation, LeftOut
from glow.runtime.model import Model, encode_documents
from glow.runtime.reranker import (
    DocumentReader,
    QueryStates,
    Reranker,
    RerankerShape,
    RerankMethod,
    reranker_preprocessor,
)
from glow.runtime.session import Device, open_session

__all__ = [
    "ATTENTION", "DEFAULT_BATCH_TOKENS", "AttentionEncoder", "Device", "DocumentReader", "Encoder", "Explainer", "Explanation",
    "LeftOut", "Model", "QueryStates", "RerankMethod", "Reranker", "RerankerShape", "encode_documents", "open_session",
    "reranker_preprocessor",
]  # fmt: skip
