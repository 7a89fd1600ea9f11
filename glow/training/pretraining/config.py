"""Configuration of pre-training: strict TOML for `glow pretrain`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glow.nn import PretrainingKind
from glow.options import StrictModel
from glow.training.run import OptimizerOptions, RunConfig

__all__ = ["EncoderOptions", "PretrainConfig", "PretrainOptimizer", "TextOptions"]


class EncoderOptions(StrictModel):
    """The encoder.

    Attributes:
        init: what to take from `--init`: its `layers`; its token embeddings (`words`), with random layers; or `none`.
        init_layers: its layers that become layers 0, 1, …; their number is the depth.
        hidden, heads: size with init `none`; 0: as in the initial encoder. The inner layer is four times as wide.
        positions: rows of the position table with init `none`.
        dropout: of hidden states and attention.
        train_words: whether to train the token embeddings, which both towers share.
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
                f"hidden and heads are the initial encoder's if init is {self.init!r}; leave them out"
            )
        if self.init == "none" and not self.train_words:
            raise ValueError("init 'none' draws random token embeddings, which must be trained (train_words)")
        return self


class TextOptions(StrictModel):
    """The objective and its samples.

    Attributes:
        kind: the objective: `cross-thought`, `mlm`, `retro` or `crops` (`glow.nn.Pretrainer`).
        length: L, tokens per sequence. `crops` reads two halves of it.
        sequences: M, consecutive sequences per sample. Only for `cross-thought`.
        specials: N, special tokens before each sequence.
        masked: fraction of the tokens that the encoder must recover: 80 % become [MASK], 10 % another token, 10 % stay.
        bag: weight of a second loss of `cross-thought`: special tokens alone tell the words of their sequence. No paper has it;
            a probe needs it for attention to choose (docs/papers/cross-thought.md).
        decoder_masked: fraction that the decoder of `retro` must recover.
    """

    kind: PretrainingKind = "cross-thought"
    length: int = Field(default=64, ge=8)
    sequences: int = Field(default=32, ge=1)
    specials: int = Field(default=5, ge=1)
    masked: float = Field(default=0.15, gt=0.0, lt=1.0)
    decoder_masked: float = Field(default=0.5, gt=0.0, lt=1.0)
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
    """The optimizer.

    Attributes:
        batch_tokens: tokens per step and process, in whole samples, at least one.
        steps: total number of steps.
        warmup: fraction of the steps in which the rate rises; it then falls to 0.
    """

    batch_tokens: int = Field(default=8192, ge=64)
    steps: int = Field(default=1000, ge=1)
    learning_rate: float = Field(default=5e-4, gt=0.0)
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
