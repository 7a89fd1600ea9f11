"""Configuration of pre-training: strict TOML, of `glow pretrain`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glow.nn import PretrainingKind
from glow.options import StrictModel
from glow.training.run import OptimizerOptions, RunConfig

__all__ = ["EncoderOptions", "PretrainConfig", "PretrainOptimizer", "TextOptions"]


class EncoderOptions(StrictModel):
    """The encoder.

    Attributes:
        init: what is taken from `--init`: its `layers`, its `words` alone under layers drawn at random, or `none` of it.
        init_layers: layers of it that become layers 0, 1, …; their number is the depth.
        hidden, heads: where nothing is taken; 0 is the initial encoder's own. The inner layer is four times as wide.
        positions: rows of the position table, where nothing is taken.
        dropout: of states and attention.
        train_words: whether the word table learns; it belongs to both towers.
    """

    init: Literal["layers", "words", "none"] = "layers"
    init_layers: tuple[int, ...] = Field(default=(0, 4, 5), min_length=1)
    hidden: int = Field(default=0, ge=0)
    heads: int = Field(default=0, ge=0)
    positions: int = Field(default=512, ge=16)
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    train_words: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.hidden or self.heads) and self.init != "none":
            raise ValueError(
                f"hidden and heads are the initial encoder's where its {self.init} are taken; leave them out"
            )
        if self.init == "none" and not self.train_words:
            raise ValueError("init 'none' draws the word table at random: it must be trained (train_words)")
        return self


class TextOptions(StrictModel):
    """What is recovered from what.

    Attributes:
        kind: the objective: `cross-thought`, `mlm`, `retro` or `crops` (`glow.nn.Pretrainer`).
        length: L, pieces of a sequence. `crops` reads two halves of it.
        sequences: M, of a sample; sequences of one sample follow each other in the text. Of `cross-thought` alone.
        specials: N, special tokens before each sequence.
        masked: share of the pieces that the encoder has to recover; of them 80 % become [MASK], 10 % another piece, 10 % stay.
        decoder_masked: share that the decoder of `retro` has to recover.
    """

    kind: PretrainingKind = "cross-thought"
    length: int = Field(default=64, ge=8)
    sequences: int = Field(default=32, ge=1)
    specials: int = Field(default=5, ge=1)
    masked: float = Field(default=0.15, gt=0.0, lt=1.0)
    decoder_masked: float = Field(default=0.5, gt=0.0, lt=1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "cross-thought" and self.sequences < 2:
            raise ValueError(
                "a sample of one sequence has no neighbours to look at; sequences needs at least 2"
            )
        return self


class PretrainOptimizer(OptimizerOptions):
    """How the loss is minimised.

    Attributes:
        batch_tokens: pieces a step and process; whole samples, at least one.
        steps: in all.
        warmup: share of the steps in which the rate rises; it then falls to 0.
    """

    batch_tokens: int = Field(default=8192, ge=64)
    steps: int = Field(default=1000, ge=1)
    learning_rate: float = Field(default=5e-4, gt=0.0)
    warmup: float = Field(default=0.08, ge=0.0, lt=1.0)


class PretrainConfig(RunConfig):
    """A run of pre-training."""

    pretraining: TextOptions = TextOptions()
    encoder: EncoderOptions = EncoderOptions()
    optimizer: PretrainOptimizer = PretrainOptimizer()

    @property
    def samples(self) -> int:
        """Samples a step and process."""
        wanted = self.pretraining
        sequences = wanted.sequences if wanted.kind == "cross-thought" else 1
        return max(1, self.optimizer.batch_tokens // (sequences * wanted.length))
