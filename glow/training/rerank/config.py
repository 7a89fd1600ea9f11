"""Configuration of a re-ranker's training: strict TOML with a table `[cross]`."""

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
        train_words: whether to train the token embeddings.
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
    """The loss.

    Attributes:
        kind: `list`, cross-entropy of the relevant document among a query's candidates; `pairwise`, the paper's mean of
            1 - softmax of the relevant one against one other; or `attention`, which trains only the compressor (PreTTR
            section 4.2) by the squared change that it causes in the attention of the joined layers.
        negatives: candidates that are not judged relevant, per query and step; 1 for `pairwise`.
        depth: first-stage rank down to which they are drawn.
        mix: factor of the first-stage score, added to the logit in training, so that the model complements that score;
            0: none.
        distill: weight in the loss of the divergence from a teacher's distribution over the candidates (`--teacher`: a
            re-ranker, such as one that joins all layers); 0: no teacher.
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
    """The optimizer.

    Attributes:
        batch_size: queries per step.
        epochs, max_steps: passes over the queries, and the most steps (0: no limit).
        head_rate: factor of the learning rate for the scoring head and the compressor, which start at random (50: 1e-3
            instead of 2e-5, as released).
        warmup: fraction of the steps in which rates rise; they then fall to 0.
    """

    batch_size: int = Field(default=16, ge=1)
    epochs: int = Field(default=1, ge=1)
    max_steps: int = Field(default=0, ge=0)
    learning_rate: float = Field(default=5e-5, gt=0.0)
    head_rate: float = Field(default=20.0, gt=0.0)
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)


class RerankConfig(RunConfig):
    """The configuration of a training run of a re-ranker.

    Attributes:
        fields: name of a schema preset.
        query_tokens, document_tokens: token limits. A document's positions begin after the longest query, so both are
            fixed after training.
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
        """The preset with this run's token limits."""
        changes = {"query_tokens": self.query_tokens, "document_tokens": self.document_tokens}
        return FieldSchema.model_validate(FieldSchema.preset(self.fields).model_dump() | changes)
