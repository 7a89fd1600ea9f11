"""Runs towers and re-rankers without torch: models, ONNX sessions, encoders."""

from glow.runtime.encoder import DEFAULT_BATCH_TOKENS, VECTOR, Device, Encoder, open_session
from glow.runtime.explain import ATTENTION, AttentionEncoder, Explainer, Explanation, TermAblation
from glow.runtime.model import TERMS, LearnedHead, Model, preprocess_documents
from glow.runtime.reranker import DocumentReader, Reranker, RerankerShape

__all__ = [
    "ATTENTION", "DEFAULT_BATCH_TOKENS", "TERMS", "VECTOR", "AttentionEncoder", "Device", "DocumentReader",
    "Encoder", "Explainer", "Explanation", "LearnedHead", "Model", "Reranker", "RerankerShape",
    "TermAblation", "open_session", "preprocess_documents",
]  # fmt: skip
