"""Training: data, losses, loop, checkpoints. Needs the `train` extra."""
