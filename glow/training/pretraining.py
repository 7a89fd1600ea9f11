"""The recipe of pre-training an encoder on text without queries: Cross-Thought and other objectives for comparison."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from glow.artifact import QUERY_TOWER
from glow.errors import ConfigError
from glow.nn import (
    Pretrainer,
    PretrainingBatch,
    SentenceConfig,
    SentenceEncoder,
    Tower,
    TowerConfig,
    bert_config,
    init_encoder,
    load_weights,
)
from glow.runtime import Model
from glow.text import WordPieces
from glow.training.checkpoint import kind_of, load_checkpoint, read_towers, save_pretrained
from glow.training.config import Given
from glow.training.data import one_at_a_time
from glow.training.pretraining_text import PieceStream, PretrainConfig, Samples, make_stream
from glow.training.run import Adam, Loss, Measures, Moment, Recipe, linear

ENTROPY_ROWS = 32
"""Sequences per sample whose attention is measured: few, because memory grows with the square of a sample's length."""
WATCHED_STEPS = 8
"""Batches of a development corpus whose loss is measured."""
LARGE_BATCHES = Adam(betas=(0.9, 0.98))
"""RoBERTa's constants, for large batches."""


def pretraining_recipe(
    config: PretrainConfig, given: Given, say: Callable[[str], None]
) -> Recipe[PretrainingBatch]:
    """Reads the inputs of a pre-training run; the text goes to the run's directory."""
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


SPECIAL_NOISE = 0.02
"""Standard deviation of the special tokens' initial embeddings around that of [CLS]."""


def initial_pretrainer(config: PretrainConfig, init: Path, cls_id: int) -> Pretrainer:
    """The initial model of a run; the run's seed decides random weights.

    `init` is a BERT directory, such as a pre-trained checkpoint; or a checkpoint of towers or a model (document tower).
    """
    torch.manual_seed(config.seed)
    shape, tower = _found(init)
    wanted, text = config.encoder, config.pretraining
    is_taken = wanted.init == "layers"
    rows = _rows(init, tower) if is_taken else wanted.positions
    hidden = wanted.hidden or shape.hidden
    sentence = SentenceConfig(
        vocabulary=shape.vocabulary,
        hidden=hidden,
        heads=wanted.heads or shape.heads,
        intermediate=shape.intermediate if is_taken else 4 * hidden,
        layers=len(wanted.init_layers),
        specials=text.specials,
        positions=rows + text.specials - 1,
        dropout=wanted.dropout,
        layer_norm_eps=shape.layer_norm_eps,
    )
    if sentence.most_offset(text.length) < 1:
        raise ConfigError(
            f"{text.length} tokens after {text.specials} special ones exceed {rows + text.specials - 1} positions; lower length"
        )
    model = Pretrainer(text.kind, sentence, text.bag)
    if wanted.init != "none":
        _fill(model.encoder, config, init, tower)
    with torch.no_grad():
        first = model.encoder.words.weight[cls_id]
        model.encoder.specials.weight.copy_(first + SPECIAL_NOISE * torch.randn(text.specials, hidden))
        model.encoder.specials.weight[0] = first
    model.encoder.words.weight.requires_grad_(wanted.train_words)
    return model


def _fill(encoder: SentenceEncoder, config: PretrainConfig, init: Path, tower: Tower | None) -> None:
    layers = config.encoder.init_layers if config.encoder.init == "layers" else ()
    if tower is None:
        init_encoder(encoder, init, layers)
        return
    with torch.no_grad():
        encoder.words.weight.copy_(tower.words.weight)
    if layers:
        if tower.distances is not None:
            raise ConfigError(
                f"the towers of {init.name} have relative positions (MPNet), which pre-training does not support"
            )
        if layers != tuple(range(len(tower.layers))):
            raise ConfigError(
                f"init_layers {list(layers)} are asked for, the document tower of {init.name} has {len(tower.layers)}, and "
                "they can only be taken as they are"
            )
        start_from_tower(encoder, tower)


def start_from_tower(encoder: SentenceEncoder, tower: Tower) -> None:
    """Fills an encoder from a tower of its shape, except token embeddings; every token gets the last field's embedding."""
    with torch.no_grad():
        encoder.set_positions(tower.positions.weight)
        encoder.segment.copy_(tower.fields.weight[-1])
    encoder.embedding_norm.load_state_dict(tower.embedding_norm.state_dict())
    encoder.layers.load_state_dict(_shared(tower, encoder))


def _shared(tower: Tower, encoder: SentenceEncoder) -> dict[str, Tensor]:
    names = encoder.layers.state_dict()
    return {name: value for name, value in tower.layers.state_dict().items() if name in names}


def _found(init: Path) -> tuple[TowerConfig, Tower | None]:
    """Shape and document tower of a model or checkpoint; for a BERT directory, only its shape."""
    if (init / QUERY_TOWER).is_file():
        towers = read_towers(Model.open(init))
    elif kind_of(init) == "towers":
        towers = load_checkpoint(init).towers
    else:
        return bert_config(init), None
    return towers.config.document, towers.document


def _rows(init: Path, tower: Tower | None) -> int:
    if tower is not None:
        return tower.positions.num_embeddings
    return len(load_weights(init)["embeddings.position_embeddings.weight"])
