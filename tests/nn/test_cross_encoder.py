"""PreTTR's model: what is read apart and stored gives the score of the whole (docs/papers.md 3, rows 24 to 31); late interaction."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from glow.encoders import MASKED_LOGIT
from glow.nn import CrossConfig, CrossEncoder, init_cross_encoder, minilm_folder
from glow.nn.cross_encoder import START_SCALE, LateInteraction

SMALL = CrossConfig(
    vocabulary=60, hidden=24, layers=4, heads=4, intermediate=48, query_tokens=9, document_tokens=20, fields=2, split=2
)  # fmt: skip


def model(**changes: object) -> CrossEncoder:
    """A small model of random weights, large enough that all of them show."""
    torch.manual_seed(1)
    made = CrossEncoder(CrossConfig.model_validate(SMALL.model_dump() | changes)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return made


def side(lengths: list[int], fields: bool) -> list[Tensor]:
    """Random ids, mask, (fields) and weights of sequences, padded to the longest."""
    rows, longest = len(lengths), max(lengths)
    ids = torch.randint(1, 60, (rows, longest))
    mask = (torch.arange(longest)[None] < torch.tensor(lengths)[:, None]).long()
    weights = torch.rand(rows, longest) + 0.5
    return [ids * mask, mask, *([torch.randint(0, 2, ids.shape)] if fields else []), weights]


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def whole(made: CrossEncoder, query: list[Tensor], document: list[Tensor]) -> Tensor:
    """The score as the paper writes it: one sequence, layers 1 to l under the join mask, every row of the last layer."""
    ids, mask, weights = query
    document_ids, document_mask, field_ids, document_weights = document
    length, start = ids.shape[1], made.config.query_tokens
    segments = torch.cat([torch.zeros_like(ids), field_ids + 1], 1)
    places = torch.cat([torch.arange(length), torch.arange(start, start + document_ids.shape[1])])
    embedded = (
        made.words(torch.cat([ids, document_ids], 1)) + made.positions(places) + made.segments(segments)
    )
    x = made.embedding_norm(embedded)
    kept = torch.cat([mask, document_mask], 1).bool()
    of_query = torch.arange(x.shape[1]) < length
    padding = (~kept[:, None, None, :]) * MASKED_LOGIT
    apart = padding + (of_query[:, None] != of_query[None]) * MASKED_LOGIT
    every_weight = torch.cat([weights, document_weights], 1)
    for number, layer in enumerate(made.layers):
        if number == made.config.split and made.compressor is not None:
            x = made.compressor(x)
        joins = number >= made.config.split
        x = layer(x, every_weight if joins else torch.ones_like(every_weight), padding if joins else apart)
    return made.head(x[:, 0]).squeeze(-1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", ["plain", "log"])
@pytest.mark.parametrize(("split", "size"), [(0, 0), *itertools.product((1, 2, 3), (0, 8))])
def test_joined_from_stored_states_equals_the_whole_under_the_join_mask(
    split: int, size: int, form: str
) -> None:
    made = model(split=split, compressed=size, weight_form=form)
    for layer in made.layers[split:]:
        if form == "log":
            layer.attention.gain.normal_()  # type: ignore[union-attr, operator]
    query, document = side([9, 4, 6], False), side([20, 7, 13], True)
    stored = made.stored(*document[:3])
    assert stored.shape[-1] == (size or 24)
    found = made.score(made.read_query(*query), made.restore(stored, document[1], document[3]))
    expected = whole(made, query, document)
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(made(query, document), expected, atol=1e-5, rtol=0)


def test_a_score_does_not_depend_on_batch_mates_or_the_padding_of_the_query() -> None:
    made = model(split=2, compressed=8)
    query, document = side([4], False), side([7], True)
    alone = made(query, document)
    longer, mates = side([9, 4], False), side([20, 7], True)
    for part, own in zip([*longer, *mates], [*query, *document], strict=True):
        part[1, : own.shape[1]] = own[0]
    torch.testing.assert_close(made(longer, mates)[1:], alone, atol=1e-5, rtol=0)


def test_one_query_goes_with_every_document() -> None:
    made = model()
    query, documents = side([5], False), side([20, 7, 13], True)
    each = torch.cat([made(query, [part[row : row + 1] for part in documents]) for row in range(3)])
    torch.testing.assert_close(made(query, documents), each, atol=1e-5, rtol=0)


def test_the_last_layer_works_out_the_state_of_cls_alone() -> None:
    made = model(split=3)
    attention, x = made.layers[-1].attention, torch.randn(2, 11, 24)
    weights, bias = torch.rand(2, 11) + 0.5, torch.zeros(2, 1, 1, 11)
    found = attention.first_row(x, weights, bias)
    torch.testing.assert_close(found, attention(x, weights, bias)[:, 0], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"split": 4}, "split 4 of 4 layers"), ({"split": 0, "compressed": 8}, "split of at least 1")],
)
def test_shapes_whose_score_would_know_nothing_are_refused(changes: dict[str, int], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CrossConfig.model_validate(SMALL.model_dump() | changes)


def test_attention_of_the_joined_layers_is_what_the_compressor_is_trained_to_keep() -> None:
    made = model(split=2, compressed=8)
    query, document = side([5, 3], False), side([9, 20], True)
    found = made.attentions(made.read_query(*query), made.read_document(*document))
    assert [tuple(layer.shape) for layer in found] == [(2, 4, 25, 25)] * 2
    for layer in found:
        torch.testing.assert_close(layer.sum(-1), torch.ones(2, 4, 25), atol=1e-5, rtol=0)
        assert float(layer[1, :, :, 3:5].max()) == 0.0  # the query's padding


def test_from_minilm_layers_read_as_bert_reads_a_single_text() -> None:
    """The query's side with all layers but one apart: last hidden states of `transformers`' BertModel, below 1e-5."""
    from transformers import BertModel

    folder = minilm_folder()
    config = CrossConfig(vocabulary=30_522, query_tokens=64, document_tokens=256, fields=5, split=5)
    made = CrossEncoder(config).eval()
    init_cross_encoder(made, folder, range(6))
    bert = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = torch.randint(1000, 30_000, (2, 12))
    mask = torch.ones_like(ids)
    expected = bert(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[5]
    found = made.read_query(ids, mask, torch.ones(2, 12)).states
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def late_interaction() -> LateInteraction:
    made = LateInteraction(2, 2)
    torch.nn.init.eye_(made.project.weight)
    return made


def test_each_query_token_finds_its_nearest_document_token() -> None:
    query = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    document = torch.tensor([[[3.0, 4.0], [-1.0, 0.0]], [[0.0, 5.0], [1.0, 0.0]]])
    mask = torch.ones(2, 2).bool()
    found = late_interaction()(query, mask[:1], document, mask)
    # cosines of the first document: .6 and .8 (its other token: -1 and 0); of the second 1 and 1.
    torch.testing.assert_close(found, START_SCALE * torch.tensor([0.7, 1.0]))


def test_padding_is_neither_found_nor_counted_by_late_interaction() -> None:
    made = late_interaction()
    query, document = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[[3.0, 4.0], [1.0, 0.0]]])
    first, both = torch.tensor([[True, False]]), torch.tensor([[True, True]])
    torch.testing.assert_close(made(query, first, document, first), torch.tensor([START_SCALE * 0.6]))
    torch.testing.assert_close(made(query, both, document, first), torch.tensor([START_SCALE * 0.7]))


def test_the_score_starts_as_late_interaction_alone() -> None:
    made = CrossEncoder(SMALL.model_copy(update={"layers": 3, "late": 8})).eval()
    query, document = made.read_query(*side([7] * 3, False)), made.read_document(*side([7] * 3, True))
    torch.testing.assert_close(made.score(query, document), made.late_score(query, document))
    made.head.bias.fill_(1.0)
    torch.testing.assert_close(made.score(query, document), made.late_score(query, document) + 1.0)
