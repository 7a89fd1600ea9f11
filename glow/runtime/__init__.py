"""Running towers without torch: models, ONNX sessions, encoders."""

from glow.runtime.encoder import Encoder
from glow.runtime.model import Model, encode_documents
from glow.runtime.session import Device, open_session

__all__ = ["Device", "Encoder", "Model", "encode_documents", "open_session"]
