"""Checkpoint to model artefact: ONNX graphs, quantisation, parity, packaging. Needs the `export` extra."""
