"""What needs a GPU, in one folder that any CUDA machine with torch can run: `python -m research.gpu pack`, then `run`."""
