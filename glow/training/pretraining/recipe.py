"""The recipe of pre-training an encoder on text without queries."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from glow.errors import ConfigError
from glow.nn import Pretrainer, PretrainingBatch
from glow.text import WordPieces
from glow.training.data import one_at_a_time
from glow.training.given import Given
from glow.training.pretraining.checkpoint import save_pretrained
from glow.training.pretraining.config import PretrainConfig
from glow.training.pretraining.initial import initial_pretrainer
from glow.training.pretraining.samples import Samples
from glow.training.pretraining.stream import PieceStream, make_stream
from glow.training.run import Adam, Loss, Measures, Moment, Recipe, linear

__all__ = ["attention_entropy", "pretraining_recipe"]

ENTROPY_ROWS = 32
"""Sequences per sample whose attention is measured: few, because memory grows with the square of a sample's length."""
WATCHED_STEPS = 8
"""Batches of a development corpus whose loss is measured."""
LARGE_BATCHES = Adam(betas=(0.9, 0.98))
"""RoBERTa's constants, for large batches."""


def pretraining_recipe(
    config: PretrainConfig, given: Given, say: Callable[[str], None]
) -> Recipe[PretrainingBatch]:
    """Reads the inputs of a pre-training run; the text goes to the run's directory.

    Raises:
        ConfigError: if there is no text, or configuration and initial weights do not match.
        GlowError: if a corpus cannot be used.
    """
    unread = ("data", "synthesize", "synthesis_model", "negatives", "candidates", "dev_candidates", "teacher")
    given.refuse("pre-training (a config with [pretraining])", *unread)
    if not given.corpora:
        raise ConfigError("there is nothing to read; give --corpus")
    pieces = WordPieces(given.init / "vocab.txt")
    model = initial_pretrainer(config, given.init, pieces.cls_id)
    loss = PretrainLoss(model)
    stream = _read_text(config, given.corpora, pieces, given.run_folder, say)
    samples = Samples(config, stream, model.config, pieces)
    measures: Measures | None = None
    deciding: list[str] = []
    if given.dev and config.watch.steps:
        watched = [_read_text(config, [corpus], pieces, given.run_folder, say) for corpus in given.dev]
        named = {
            corpus.name: Samples(config, text, model.config, pieces)
            for corpus, text in zip(given.dev, watched, strict=True)
        }
        measures = loss.measures(named)
        deciding = [text.digest for text in watched] if config.watch.patience else []
    return Recipe(
        config,
        samples,
        model,
        loss,
        lambda out, report: save_pretrained(out, model, pieces, report),
        [stream.digest, *deciding],
        adam=LARGE_BATCHES,
        rate=linear(config.optimizer.warmup),
        measures=measures,
        about={
            "corpora": [path.name for path in given.corpora],
            "pieces": len(stream),
            "samples_per_pass": samples.per_pass,
        },
        unit="tokens",
        minutes=given.minutes,
    )


class PretrainLoss(nn.Module):
    """A model, which computes its own loss, and figures for the report."""

    def __init__(self, model: Pretrainer) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: PretrainingBatch, moment: Moment) -> Loss:
        """The loss of a batch; also the entropy of cross-sequence attention if there is any and the step is recorded."""
        batch = batch.to(moment.device)
        with moment.autocast():
            value = self.model(batch)
        figures = {}
        if moment.is_told and self.model.crossed is not None:
            figures["entropy"] = attention_entropy(self.model, batch)
        return Loss(value, batch.ids.numel(), figures)

    def measures(self, corpora: dict[str, Samples]) -> Measures:
        """The negative loss of each corpus, over the same samples each time."""

        def measure(moment: Moment) -> dict[str, float]:
            self.eval()
            with torch.inference_mode(), moment.autocast():
                found = {
                    name: -float(
                        np.mean(
                            [
                                float(self.model(samples.batch(step, 0, 1).to(moment.device)))
                                for step in range(WATCHED_STEPS)
                            ]
                        )
                    )
                    for name, samples in corpora.items()
                }
            self.train()
            return found

        return measure


def attention_entropy(model: Pretrainer, batch: PretrainingBatch) -> float:
    """Entropy of cross-sequence attention in the first sample, relative to uniform attention; NaN without any."""
    if model.crossed is None:
        return float("nan")
    sequences = batch.sequences
    with torch.no_grad():
        specials = model.crossed.embed(batch.masked[:sequences], batch.mask[:sequences])
        shares = model.crossed.logits(specials[:ENTROPY_ROWS], specials).softmax(-1)
    entropy = torch.special.entr(shares).sum(-1).mean()
    return float(entropy / np.log(sequences))


def _read_text(
    config: PretrainConfig,
    corpora: Sequence[Path],
    pieces: WordPieces,
    run_folder: Path,
    say: Callable[[str], None],
) -> PieceStream:
    """Corpora as one stream of at least one sample; one process writes it, the others read it."""
    wanted = config.pretraining
    least = wanted.length * (wanted.sequences if wanted.kind == "cross-thought" else 1)
    say("reading text")
    with one_at_a_time(run_folder / "text.lock"):
        return make_stream(corpora, pieces, run_folder, least, lambda texts: say(f"reading text: {texts:,}"))
