"""Running towers without torch: models, ONNX sessions, encoders."""

from glow.runtime.encoder import DEFAULT_BATCH_TOKENS, Encoder
from glow.runtime.explain import ATTENTION, AttentionEncoder, Explainer, Explanation, LeftOut
from glow.runtime.model import Model, encode_documents
from glow.runtime.session import Device, open_session

__all__ = [
    "ATTENTION", "DEFAULT_BATCH_TOKENS", "AttentionEncoder", "Device", "Encoder", "Explainer", "Explanation",
    "LeftOut", "Model", "encode_documents", "open_session",
]  # fmt: skip
