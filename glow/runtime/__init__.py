"""Running towers and re-rankers without torch: models, ONNX sessions, encoders."""

from glow.runtime.encoder import DEFAULT_BATCH_TOKENS, Encoder
from glow.runtime.explain import ATTENTION, AttentionEncoder, Explainer, Explanation, LeftOut
from glow.runtime.learned import TERMS, LearnedHead, TermsEncoder
from glow.runtime.model import Model, encode_documents, preprocess_documents
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
    "ATTENTION", "DEFAULT_BATCH_TOKENS", "TERMS", "AttentionEncoder", "Device", "DocumentReader", "Encoder", "Explainer", "Explanation",
    "LearnedHead", "LeftOut", "Model", "QueryStates", "RerankMethod", "Reranker", "RerankerShape", "TermsEncoder", "encode_documents", "open_session", "preprocess_documents",
    "reranker_preprocessor",
]  # fmt: skip
