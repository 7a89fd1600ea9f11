"""Checkpoint to model artifact: ONNX graphs, quantization, parity, packaging. Needs the `export` extra."""
