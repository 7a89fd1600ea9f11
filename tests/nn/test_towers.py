"""Towers: equality with BERT, what is shared and what is not, padding, pooling."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from glow.encoders import distance_rows
from glow.errors import ConfigError
from glow.nn import TowerConfig, TwoTowers, bert_config, init_from_bert, load_weights, minilm_folder
from glow.schema import FieldSchema
from tests.training.conftest import write_bert

SCHEMA = FieldSchema.preset("glow-default")
SMALL = TowerConfig(vocabulary=60, hidden=24, layers=2, heads=4, intermediate=48)


def batch(rows: int = 3, length: int = 11, vocabulary: int = 60) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random ids, mask with padding at the end of one row, zero field ids and weights of one."""
    torch.manual_seed(0)
    ids = torch.randint(0, vocabulary, (rows, length))
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[-1, length // 2 :] = 0
    return ids, mask, torch.zeros_like(ids), torch.ones(rows, length)


@pytest.fixture
def small_bert(tmp_path: Path, toy_model: Path) -> Path:
    return write_bert(tmp_path, toy_model / "vocab.txt")


def test_with_weights_of_one_a_tower_equals_bert() -> None:
    """Against `transformers`' BertModel with the same weights, last hidden states, below 1e-5."""
    from transformers import BertModel

    folder, layers = minilm_folder(), (0, 2, 4)
    bert = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    bert.encoder.layer = nn.ModuleList(bert.encoder.layer[index] for index in layers)
    config = bert_config(folder, layers=len(layers), dropout=0.0)
    towers = TwoTowers(config, SCHEMA).eval()
    init_from_bert(towers, folder, layers)
    ids, mask, field_ids, weights = batch(length=20, vocabulary=30_000)
    with torch.no_grad():
        expected = bert(input_ids=ids, attention_mask=mask).last_hidden_state
        for tower in (towers.query, towers.document):
            found = tower.states(ids, mask, field_ids, weights)
            real = mask.bool()
            assert (found - expected)[real].abs().max() < 1e-5


def test_towers_share_the_word_table_and_nothing_else() -> None:
    towers = TwoTowers(SMALL, SCHEMA)
    assert towers.query.words is towers.document.words is towers.words
    query = {id(parameter) for parameter in towers.query.parameters()}
    document = {id(parameter) for parameter in towers.document.parameters()}
    assert query & document == {id(towers.words.weight)}
    assert towers.document.fields.num_embeddings == len(SCHEMA.fields)


@pytest.mark.parametrize("pooling", ["cls", "tanh", "mean", "weighted"])
@pytest.mark.parametrize(("side", "form"), [("key", "multiply"), ("row", "multiply"), ("key", "log")])
def test_padding_never_changes_a_vector(pooling: str, side: str, form: str) -> None:
    config = SMALL.model_copy(
        update={"pooling": pooling, "weight_side": side, "weight_form": form, "gain": 0.7}
    )
    tower = TwoTowers(config, SCHEMA).eval().query
    ids, mask, field_ids, _ = batch()
    weights = torch.rand(ids.shape) + 0.3
    with torch.no_grad():
        together = tower(ids, mask, field_ids, weights)
        length = int(mask[-1].sum())
        alone = tower(*(part[-1:, :length] for part in (ids, mask, field_ids, weights)))
    torch.testing.assert_close(together[-1:], alone, atol=1e-6, rtol=0)
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(3))


def test_pooling_by_hand() -> None:
    """The first state, also through the hyperbolic tangent of a linear layer, of length 1."""
    inputs = batch()
    for pooling in ("cls", "tanh"):
        tower = TwoTowers(SMALL.model_copy(update={"pooling": pooling}), SCHEMA).eval().query
        with torch.no_grad():
            pooled = tower.states(*inputs)[:, 0].numpy()
            if tower.pooler is not None:
                nn.init.normal_(tower.pooler.weight)
                pooled = np.tanh(pooled @ tower.pooler.weight.numpy().T)
            expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
            np.testing.assert_allclose(tower(*inputs).numpy(), expected, atol=1e-5)
        assert (tower.pooler is None) == (pooling == "cls")


def test_distances_bias_the_keys_behind_a_token_by_later_rows() -> None:
    """Without products of queries and keys, the shares are a softmax of rows n - 1 + (key's place - own place)."""
    config = SMALL.model_copy(update={"relative_positions": True, "layers": 1})
    tower = TwoTowers(config, SCHEMA).eval().query
    assert tower.distances is not None
    middle = tower.max_tokens - 1
    with torch.no_grad():
        tower.layers[0].attention.qkv.weight.zero_()
        tower.distances.weight.zero_()
        tower.distances.weight[middle - 1 : middle + 2, 2] = torch.log(torch.tensor([2.0, 3.0, 5.0]))
        ids = torch.tensor([[1, 2, 3]])
        shares = tower.attention(ids, torch.ones_like(ids), torch.zeros_like(ids), torch.ones(1, 3))[0]
    wanted = [[3 / 9, 5 / 9, 1 / 9], [2 / 10, 3 / 10, 5 / 10], [1 / 6, 2 / 6, 3 / 6]]
    np.testing.assert_allclose(shares[2].numpy(), wanted, atol=1e-6)
    np.testing.assert_allclose(shares[1].numpy(), np.full((3, 3), 1 / 3), atol=1e-6)


def test_fields_tell_tokens_apart() -> None:
    tower = TwoTowers(SMALL, SCHEMA).eval().document
    ids, mask, field_ids, weights = batch()
    with torch.no_grad():
        changed = tower(ids, mask, field_ids + 2, weights)
        assert not torch.allclose(tower(ids, mask, field_ids, weights), changed, atol=1e-4)


@pytest.mark.parametrize("form", ["multiply", "log"])
@pytest.mark.parametrize("side", ["query", "document"])
def test_weights_act_in_every_layer(form: str, side: str) -> None:
    """Each layer is asked with the others' weights set to 1: its own must move the vector."""
    config = SMALL.model_copy(update={"layers": 3, "weight_form": form, "gain": 0.7})
    tower = getattr(TwoTowers(config, SCHEMA).eval(), side)
    for parameter in tower.layers.parameters():
        nn.init.normal_(parameter, std=0.3)
    ids, mask, field_ids, ones = batch()
    weights = torch.rand(ones.shape) * 3 + 0.1
    with torch.no_grad():
        plain = tower(ids, mask, field_ids, ones)
        for acting in range(3):
            hooks = [
                layer.attention.register_forward_pre_hook(lambda _, given: (given[0], ones, given[2]))
                for place, layer in enumerate(tower.layers)
                if place != acting
            ]
            moved = tower(ids, mask, field_ids, weights)
            for hook in hooks:
                hook.remove()
            assert (moved - plain).abs().max() > 1e-5, acting


@pytest.mark.parametrize(
    ("changes", "power"),
    [
        ({"weight_form": "plain", "pooling_gain": 2.0}, 2.0),  # attention leaves weights to the pooling
        ({"gain": 0.5}, 0.5),
    ],
)
def test_weighted_pooling_is_a_mean_weighted_by_a_power_of_w(
    changes: dict[str, object], power: float
) -> None:
    tower = TwoTowers(SMALL.model_copy(update={"pooling": "weighted", **changes}), SCHEMA).eval().query
    ids, mask, field_ids, ones = batch()
    weights = torch.rand(ids.shape) + 0.3
    with torch.no_grad():
        states = tower.states(ids, mask, field_ids, weights)
        is_plain = torch.equal(states, tower.states(ids, mask, field_ids, ones))
        share = weights**power * mask
        pooled = (states * share[:, :, None]).sum(1) / share.sum(1, keepdim=True)
        found = tower(ids, mask, field_ids, weights)
    torch.testing.assert_close(found, nn.functional.normalize(pooled, dim=-1), atol=1e-5, rtol=1e-5)
    assert is_plain == ("weight_form" in changes)


def test_layers_are_taken_in_the_order_asked_for(small_bert: Path) -> None:
    towers, weights = TwoTowers(bert_config(small_bert, layers=2), SCHEMA), load_weights(small_bert)
    init_from_bert(towers, small_bert, (1, 0))
    for layer, number in zip(towers.query.layers, (1, 0), strict=True):
        expected = weights[f"encoder.layer.{number}.intermediate.dense.weight"]
        assert np.array_equal(layer.inner.weight.detach(), expected)


def test_a_wrong_number_of_layers_and_an_absent_layer_are_refused(small_bert: Path) -> None:
    towers = TwoTowers(bert_config(small_bert, layers=1), SCHEMA)
    with pytest.raises(ConfigError, match=r"2 layers chosen .* the query tower has 1"):
        init_from_bert(towers, small_bert, (0, 1))
    with pytest.raises(ConfigError, match=r"no encoder\.layer\.9"):
        init_from_bert(towers, small_bert, (9,))


def test_gains_on_the_row_side_are_refused() -> None:
    with pytest.raises(ValidationError, match="a softmax ignores what a row shares"):
        TowerConfig.model_validate({"vocabulary": 60, "weight_form": "log", "weight_side": "row"})


@pytest.mark.parametrize("changes", [{}, {"weight_side": "row"}, {"weight_form": "log", "gain": 0.7}])
def test_the_last_layers_attention_explains_the_last_states(changes: dict[str, object]) -> None:
    """Rows sum to 1, padding gets nothing, and the layer's values mixed by it give the states."""
    torch.manual_seed(1)
    tower = TwoTowers(SMALL.model_copy(update=changes), SCHEMA).eval().document
    for layer in tower.layers:
        nn.init.normal_(layer.attention.qkv.weight, std=0.3)
    ids, mask, field_ids, _ = batch()
    inputs = (ids, mask, field_ids, torch.rand(ids.shape) * 2 + 0.1)
    with torch.no_grad():
        attention, states = tower.attention(*inputs), tower.states(*inputs)
        last = tower.layers[-1]
        tower.layers = tower.layers[:-1]
        x = tower.states(*inputs)
        values = last.attention.qkv(x).chunk(3, -1)[2].unflatten(-1, (SMALL.heads, -1)).transpose(1, 2)
        mixed = (attention @ values).transpose(1, 2).flatten(-2)
        inner = last.attention_norm(x + last.attention.output(mixed))
        found = last.output_norm(inner + last.outer(nn.functional.gelu(last.inner(inner))))
    assert attention.dtype == torch.float32
    assert attention.shape == (3, SMALL.heads, 11, 11)
    torch.testing.assert_close(attention.sum(-1), torch.ones(3, SMALL.heads, 11))
    assert attention[-1, :, :, int(mask[-1].sum()) :].abs().max() == 0.0
    torch.testing.assert_close(found, states, atol=1e-5, rtol=1e-5)


def test_initial_values_are_berts() -> None:
    """Normal with deviation .02, cut at two deviations: .0176 of what is left; no shifts."""
    towers = TwoTowers(SMALL, SCHEMA)
    inner = towers.document.layers[1].inner
    for weight in (towers.words.weight, towers.query.positions.weight, inner.weight):
        assert weight.abs().max() <= 0.04
        assert float(weight.detach().std()) == pytest.approx(0.0176, abs=0.002)
    assert not inner.bias.any()


@pytest.mark.parametrize(
    ("distance", "bucket"),
    # By hand: 8 distances have a bucket each way; then 8 + floor(8 log(d / 8) / log(16)), at most 15; keys behind are 16 further.
    [(0, 0), (1, 17), (-1, 1), (-7, 7), (-8, 8), (8, 24), (-12, 9), (20, 26), (-60, 13), (127, 31), (-128, 15), (299, 31)],
)  # fmt: skip
def test_a_distance_has_mpnets_bucket(distance: int, bucket: int) -> None:
    rows = distance_rows(np.arange(32, dtype=np.float32)[:, None], 300)
    assert rows.shape == (599, 1)
    assert rows[299 + distance].item() == bucket
