"""Configuration of a re-ranker's training: strict TOML, told from that of the towers by its table `[cross]`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glow.errors import ConfigError
from glow.options import StrictModel
from glow.schema import FieldSchema
from glow.text import Weighting
from glow.training.run import OptimizerOptions, RunConfig

__all__ = ["CrossOptions", "RerankConfig", "RerankObjective", "RerankOptimizer"]


class CrossOptions(StrictModel):
    """The model.

    Attributes:
        init_layers: layers of the initial encoder that become layers 1, 2, …; their number is n.
        split, compressed, late, weight_form, dropout: as `glow.nn.CrossConfig`.
        train_words: whether the word table learns.
    """

    init_layers: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4, 5), min_length=1)
    split: int = Field(default=0, ge=0)
    compressed: int = Field(default=0, ge=0)
    late: int = Field(default=0, ge=0)
    weight_form: Literal["plain", "log"] = "plain"
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    train_words: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.split >= len(self.init_layers):
            raise ValueError(
                f"split {self.split} of {len(self.init_layers)} layers: at least one must join query and document"
            )
        return self


class RerankObjective(StrictModel):
    """What is minimised.

    Attributes:
        kind: `list`, cross-entropy of the relevant document among a query's candidates; `pairwise`, the paper's mean of
            1 - softmax of the relevant one beside one other; or `attention`, the compressor's own training (PreTTR section 4.2):
            the squared difference that it makes to the attention of the joined layers, all else frozen.
        negatives: candidates that are not judged relevant, a query and step; 1 for `pairwise`.
        depth: how deep in the first search's ranking they are drawn.
        mix: times the first search's score, added to the logit while training, so that the model learns what that search does
            not know; 0 leaves it out.
        distill: share of the loss that is the difference from a teacher's shares over the candidates (`--teacher`: a re-ranker, such as one
            that joins all layers); 0: there is no teacher.
    """

    kind: Literal["list", "pairwise", "attention"] = "list"
    negatives: int = Field(default=3, ge=1)
    depth: int = Field(default=50, ge=2)
    mix: float = Field(default=0.0, ge=0.0)
    distill: float = Field(default=0.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "pairwise" and self.negatives != 1:
            raise ValueError(f"kind 'pairwise' compares with one negative, found negatives {self.negatives}")
        if self.kind == "attention" and self.distill:
            raise ValueError("kind 'attention' has no scores to compare with a teacher's; leave distill out")
        return self


class RerankOptimizer(OptimizerOptions):
    """How it is minimised.

    Attributes:
        batch_size: queries a step.
        epochs, max_steps: passes over the queries, and where it stops earlier (0: no bound).
        head_rate: times the learning rate, for the score's head and the compressor, which start from chance (50: 1e-3 beside
            2e-5, as released).
        warmup: share of the steps in which rates rise; they then fall to 0.
    """

    batch_size: int = Field(default=16, ge=1)
    epochs: int = Field(default=1, ge=1)
    max_steps: int = Field(default=0, ge=0)
    learning_rate: float = Field(default=5e-5, gt=0.0)
    head_rate: float = Field(default=20.0, gt=0.0)
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)


class RerankConfig(RunConfig):
    """A run of a re-ranker.

    Attributes:
        fields: a schema preset's name.
        query_tokens, document_tokens: longest query and document that are read; a document's positions begin behind the
            longest query, so both are fixed for good.
    """

    checkpoint_steps: int = Field(default=100, ge=1)
    fields: str = "glow-default"
    query_tokens: int = Field(default=32, ge=3)
    document_tokens: int = Field(default=128, ge=8)
    weighting: Weighting = Weighting()
    cross: CrossOptions
    objective: RerankObjective = RerankObjective()
    optimizer: RerankOptimizer = RerankOptimizer()

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            _ = self.field_schema
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.objective.kind == "attention" and not self.cross.compressed:
            raise ValueError(
                "objective kind 'attention' trains a compressor: it needs [cross] compressed above 0"
            )
        return self

    @property
    def field_schema(self) -> FieldSchema:
        """The preset with this run's longest query and document."""
        changes = {"query_tokens": self.query_tokens, "document_tokens": self.document_tokens}
        return FieldSchema.model_validate(FieldSchema.preset(self.fields).model_dump() | changes)
