"""Makes training pairs from documents alone."""

from glow.training.synthesis.candidates import KINDS
from glow.training.synthesis.pairs import SynthesisOptions, synthesize

__all__ = [
    "KINDS",
    "SynthesisOptions",
    "synthesize",
]
