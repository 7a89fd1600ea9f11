"""Exports a checkpoint as a model artifact: ONNX graphs, quantization, parity, packaging. Needs the `export` extra."""
