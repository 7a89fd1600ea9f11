"""The recipe of pre-training an encoder on text without queries: Cross-Thought and other objectives for comparison.

Every choice depends only on seed, pass and step.

S   sequences of a step     L   tokens of a sequence        M   sequences of a sample       N   special tokens
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import nn

from glow.artifact import file_sha256
from glow.collection import read_documents
from glow.errors import ConfigError, InputError
from glow.nn import (
    Pretrainer,
    PretrainingBatch,
    PretrainingKind,
    SentenceConfig,
    bert_config,
    init_encoder,
    load_weights,
)
from glow.options import StrictModel
from glow.text import WordPieces
from glow.training.checkpoint import save_pretrained
from glow.training.data import Given, one_at_a_time
from glow.training.run import (
    Adam,
    Loss,
    Measures,
    Moment,
    OptimizerOptions,
    Recipe,
    RunConfig,
    linear,
    parts_hash,
)


class EncoderOptions(StrictModel):
    """The encoder."""

    init: Literal["layers", "none"] = "layers"  # whether to start from the layers of `--init`, or from chance
    # its layers that become layers 0, 1, …; their number is the depth
    init_layers: tuple[int, ...] = Field(default=(0, 4, 5), min_length=1)
    # size with init `none`, with an inner layer four times as wide; 0: as in the initial encoder
    hidden: int = Field(default=0, ge=0)
    heads: int = Field(default=0, ge=0)
    positions: int = Field(default=512, ge=16)  # rows of the position table with init `none`
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)  # of hidden states and attention
    train_words: bool = True  # whether to train the token embeddings, which both towers share

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.init == "none" and not self.train_words:
            raise ValueError("init 'none' draws random token embeddings, which must be trained (train_words)")
        return self


class TextOptions(StrictModel):
    """The objective and its samples."""

    # the objective: `cross-thought`, `mlm`, `retro` or `crops` (`glow.nn.Pretrainer`).
    kind: PretrainingKind = "cross-thought"
    length: int = Field(default=64, ge=8)  # L, tokens per sequence. `crops` reads two halves of it.
    sequences: int = Field(default=32, ge=1)  # M, consecutive sequences per sample. Only for `cross-thought`.
    specials: int = Field(default=5, ge=1)  # N, special tokens before each sequence
    # fraction of the tokens that the encoder must recover: 80 % become [MASK], 10 % another token, 10 % stay
    masked: float = Field(default=0.15, gt=0.0, lt=1.0)
    # fraction that the decoder of `retro` must recover
    decoder_masked: float = Field(default=0.5, gt=0.0, lt=1.0)
    # weight of a second loss of `cross-thought`: special tokens alone tell the words of their sequence. No paper has it; a probe needs it for attention to choose (docs/papers/cross-thought.md).
    bag: float = Field(default=0.0, ge=0.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "cross-thought" and self.sequences < 2:
            raise ValueError(
                "a sample of one sequence has no neighbors to attend to; sequences needs at least 2"
            )
        if self.kind != "cross-thought" and self.bag:
            raise ValueError(f"bag is for special tokens of cross-thought, not for {self.kind}; leave it out")
        return self


class PretrainOptimizer(OptimizerOptions):
    """The optimizer."""

    # tokens per step and process, in whole samples, at least one
    batch_tokens: int = Field(default=8192, ge=64)
    steps: int = Field(default=1000, ge=1)  # total number of steps
    learning_rate: float = Field(default=5e-4, gt=0.0)
    # fraction of the steps in which the rate rises; it then falls to 0
    warmup: float = Field(default=0.08, ge=0.0, lt=1.0)


class PretrainConfig(RunConfig):
    """The configuration of a pre-training run."""

    pretraining: TextOptions = TextOptions()
    encoder: EncoderOptions = EncoderOptions()
    optimizer: PretrainOptimizer = PretrainOptimizer()

    @property
    def samples(self) -> int:
        """Samples per step and process."""
        wanted = self.pretraining
        sequences = wanted.sequences if wanted.kind == "cross-thought" else 1
        return max(1, self.optimizer.batch_tokens // (sequences * wanted.length))


FIELDS = ("title", "anchor", "text")
"""Document fields to read, in this order: the document's own text, without queries."""
SUFFIXES_OF_DOCUMENTS = (".jsonl", ".ndjson")
TOLD_TEXTS = 2000


class PieceStream:
    """A written stream of tokens; `digest` is the hash of the corpora and the vocabulary.

    `pieces`: int32 [n], memory-mapped.
    `path` is file of int32 tokens of all texts, each ended by [SEP].
    """

    def __init__(self, path: Path, digest: str) -> None:
        self.digest = digest
        self.pieces: NDArray[np.int32] = np.memmap(path, np.int32, "r")

    def __len__(self) -> int:
        return len(self.pieces)


def read_texts(paths: Sequence[Path]) -> Iterator[str]:
    """Texts of corpora in order: one per document of JSON Lines (`.jsonl`, `.ndjson`) or paragraph of a plain file.

    Empty lines separate paragraphs.
    """
    for path in paths:
        if path.suffix in SUFFIXES_OF_DOCUMENTS:
            for document in read_documents(path, FIELDS):
                texts = (text for values in document.fields.values() for text in values)
                yield ". ".join(text for text in texts if text.strip())
        else:
            for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace")):
                if paragraph.strip():
                    yield " ".join(paragraph.split())


def make_stream(
    paths: Sequence[Path],
    pieces: WordPieces,
    folder: Path,
    least: int,
    on_progress: Callable[[int], None] = lambda texts: None,
) -> PieceStream:
    """Writes the stream of corpora to `folder`, or opens the existing one."""
    try:
        parts = [*(file_sha256(path) for path in paths), file_sha256(pieces.vocabulary)]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    digest = parts_hash(parts)
    path = folder / f"pieces-{digest[:16]}.i32"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        with temporary.open("wb") as file:
            for number, text in enumerate(read_texts(paths), 1):
                file.write(np.array([*_pieces(text, pieces), pieces.sep_id], np.int32).tobytes())
                if number % TOLD_TEXTS == 0:
                    on_progress(number)
        temporary.replace(path)
    size = path.stat().st_size // np.dtype(np.int32).itemsize
    if size < least:
        names = ", ".join(path.name for path in paths)
        raise InputError(
            f"{names} holds {size:,} tokens, one sample takes {least:,}; give more text, or lower sequences or length"
        )
    return PieceStream(path, digest)


def _pieces(text: str, pieces: WordPieces) -> Iterator[int]:
    for word in pieces.words(text):
        yield from pieces.pieces(word)


MASK_SHARE, OTHER_SHARE = 0.8, 0.1
"""Fractions of the tokens to recover that become [MASK], and that become another token (BERT)."""
Ints = NDArray[np.int64]


class Samples:
    """Draws the batches of a run.

    A pass covers the whole stream once, in samples of M · L tokens. Their start shifts from pass to pass, so that no
    sequence is cut at the same place twice. Each pass draws a new order of samples, but not within them.
    """

    def __init__(
        self, config: PretrainConfig, stream: PieceStream, shape: SentenceConfig, pieces: WordPieces
    ) -> None:
        wanted = config.pretraining
        self._config, self._stream = config, stream
        self._sequences = wanted.sequences if wanted.kind == "cross-thought" else 1
        self._size = self._sequences * wanted.length
        self._offsets = shape.most_offset(wanted.length) if wanted.kind != "crops" else 1
        self._mask_id, self._pad_id = pieces.mask_id, pieces.pad_id
        self._special = np.array([pieces.sep_id, pieces.cls_id, pieces.pad_id])
        self._vocabulary = pieces.size
        self.per_pass = len(stream) // self._size
        self._drawn: tuple[int, Ints] = (-1, np.empty(0, np.int64))

    def steps(self, processes: int) -> int:
        """The configured number of steps."""
        return self._config.optimizer.steps

    def batch(self, step: int, process: int, processes: int) -> PretrainingBatch:
        """One process's samples of a step."""
        count = self._config.samples
        first = (step * processes + process) * count
        ids = np.concatenate([self._sample(number) for number in range(first, first + count)])
        random = np.random.default_rng([self._config.seed, 1, step, process])
        wanted = self._config.pretraining
        masked, targets = self._masked(ids, wanted.masked, random)
        decoded, decoder_targets = masked, targets
        if wanted.kind == "retro":
            decoded, decoder_targets = self._masked(ids, wanted.decoder_masked, random)
        crops = random.integers(0, wanted.length - wanted.length // 2 + 1, (2, len(ids)))
        offset = int(random.integers(1, self._offsets + 1))
        arrays = {
            "ids": ids,
            "mask": ids != self._pad_id,
            "masked": masked,
            "targets": targets,
            "decoded": decoded,
            "decoder_targets": decoder_targets,
            "crops": crops,
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return PretrainingBatch(**tensors, sequences=self._sequences, offset=offset)

    def _masked(self, ids: Ints, share: float, random: np.random.Generator) -> tuple[Ints, NDArray[np.bool_]]:
        return mask_pieces(ids, np.isin(ids, self._special), share, self._mask_id, self._vocabulary, random)

    def _sample(self, number: int) -> Ints:
        """The sample `number`, counted over all passes, int64 [M, L]."""
        turn, place = divmod(number, self.per_pass)
        if self._drawn[0] != turn:
            order = np.random.default_rng([self._config.seed, 0, turn]).permutation(self.per_pass)
            self._drawn = (turn, order)
        slack = len(self._stream) - self.per_pass * self._size
        shift = int(np.random.default_rng([self._config.seed, 2, turn]).integers(0, slack + 1))
        start = shift + int(self._drawn[1][place]) * self._size
        found = self._stream.pieces[start : start + self._size].astype(np.int64)
        return found.reshape(self._sequences, -1)


def mask_pieces(
    ids: Ints,  # int64 [S, L]
    special: NDArray[np.bool_],  # bool [S, L], tokens that are never masked
    share: float,
    mask_id: int,  # id of [MASK]
    vocabulary: int,
    random: np.random.Generator,
) -> tuple[Ints, NDArray[np.bool_]]:
    """Masks a text: returns the encoder's input, and which tokens to recover (section 3.1; 80/10/10 as released).

    Returns int64 [S, L] and bool [S, L].
    """
    places = np.flatnonzero(~special.ravel())
    count = max(1, int(share * len(places) + random.random()))
    chosen = random.choice(places, min(count, len(places)), replace=False)
    targets = np.zeros(ids.size, np.bool_)
    targets[chosen] = True
    read = ids.ravel().copy()
    fate = random.random(len(chosen))
    read[chosen[fate < MASK_SHARE]] = mask_id
    others = chosen[fate >= 1.0 - OTHER_SHARE]
    read[others] = random.integers(0, vocabulary, len(others))
    return read.reshape(ids.shape), targets.reshape(ids.shape)


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
    unread = ("data", "negatives", "candidates", "dev_candidates", "teacher")
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
            means = {}
            self.eval()
            with torch.inference_mode(), moment.autocast():
                for name, samples in corpora.items():
                    batches = (samples.batch(step, 0, 1).to(moment.device) for step in range(WATCHED_STEPS))
                    means[name] = -float(np.mean([float(self.model(batch)) for batch in batches]))
            self.train()
            return means

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

    `init` is a BERT directory, such as a pre-trained checkpoint.
    """
    torch.manual_seed(config.seed)
    shape = bert_config(init)
    wanted, text = config.encoder, config.pretraining
    is_taken = wanted.init == "layers"
    table = "embeddings.position_embeddings.weight"
    rows = len(load_weights(init)[table]) if is_taken else wanted.positions
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
    if is_taken:
        init_encoder(model.encoder, init, wanted.init_layers)
    with torch.no_grad():
        first = model.encoder.words.weight[cls_id]
        model.encoder.specials.weight.copy_(first + SPECIAL_NOISE * torch.randn(text.specials, hidden))
        model.encoder.specials.weight[0] = first
    model.encoder.words.weight.requires_grad_(wanted.train_words)
    return model
