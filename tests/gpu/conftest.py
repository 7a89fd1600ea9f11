"""A machine with a GPU may have torch alone: what these tests never call is then replaced by mocks."""

import sys
from importlib.util import find_spec
from unittest.mock import MagicMock

MISSING = [name for name in ("onnx", "onnxruntime", "faiss") if find_spec(name) is None]
sys.modules.update({name: MagicMock(name=name) for name in MISSING})
