"""The initial cross-encoder of a run."""

from pathlib import Path

import torch

from glow.errors import MismatchError
from glow.nn import CrossConfig, CrossEncoder, bert_config, init_cross_encoder
from glow.training.rerank.checkpoint import load_reranker
from glow.training.rerank.config import RerankConfig
from glow.training.run import kind_of

__all__ = ["initial_cross_encoder"]


def initial_cross_encoder(config: RerankConfig, init: Path) -> CrossEncoder:
    """The initial model of a run; the run's seed decides missing weights.

    A checkpoint may have another split, and lack the compressor or late interaction.

    Raises:
        MismatchError: if a checkpoint has other layers, fields or lengths than the configuration.
    """
    torch.manual_seed(config.seed)
    schema, cross = config.field_schema, config.cross
    trained = load_reranker(init).model if kind_of(init) == "reranker" else None
    shape = trained.config if trained is not None else bert_config(init)
    model = CrossEncoder(
        CrossConfig(
            vocabulary=shape.vocabulary,
            hidden=shape.hidden,
            heads=shape.heads,
            intermediate=shape.intermediate,
            layer_norm_eps=shape.layer_norm_eps,
            layers=len(cross.init_layers),
            split=cross.split,
            compressed=cross.compressed,
            late=cross.late,
            query_tokens=schema.query_tokens,
            document_tokens=schema.document_tokens,
            fields=len(schema.fields),
            weight_form=cross.weight_form,
            dropout=cross.dropout,
        )
    )
    if trained is None:
        init_cross_encoder(model, init, cross.init_layers)
    else:
        _go_on(model, trained)
    return model


def _go_on(model: CrossEncoder, trained: CrossEncoder) -> None:
    """Copies the weights that both have."""
    sizes = ("layers", "fields", "query_tokens", "document_tokens")
    wanted, found = ({name: getattr(one.config, name) for name in sizes} for one in (model, trained))
    if wanted != found:
        raise MismatchError(f"the checkpoint has {found}, the configuration requires {wanted}; give the same")
    known = {
        name: value
        for name, value in trained.state_dict().items()
        if name in model.state_dict() and model.state_dict()[name].shape == value.shape
    }
    model.load_state_dict(known, strict=False)
