"""Late interaction: the value worked out by hand, padding, and where the joined layers start from."""

import torch

from glow.nn import CrossConfig, CrossEncoder
from glow.nn.cross_encoder import START_SCALE, LateInteraction


def late() -> LateInteraction:
    made = LateInteraction(2, 2)
    with torch.no_grad():
        made.project.weight.copy_(torch.eye(2))
    return made


def test_each_query_token_finds_its_nearest_document_token() -> None:
    query = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    document = torch.tensor([[[3.0, 4.0], [-1.0, 0.0]], [[0.0, 5.0], [1.0, 0.0]]])
    mask = torch.ones(2, 2).bool()
    with torch.no_grad():
        found = late()(query, mask[:1], document, mask)
    # cosines of the first document: .6 and .8 (its other token: -1 and 0); of the second 1 and 1.
    torch.testing.assert_close(found, START_SCALE * torch.tensor([0.7, 1.0]))


def test_padding_is_neither_found_nor_counted() -> None:
    made = late()
    query, document = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[[3.0, 4.0], [1.0, 0.0]]])
    first, both = torch.tensor([[True, False]]), torch.tensor([[True, True]])
    with torch.no_grad():
        torch.testing.assert_close(made(query, first, document, first), torch.tensor([START_SCALE * 0.6]))
        torch.testing.assert_close(made(query, both, document, first), torch.tensor([START_SCALE * 0.7]))


def test_the_score_starts_as_late_interaction_alone() -> None:
    config = CrossConfig(
        vocabulary=60, hidden=24, layers=3, heads=4, intermediate=48, split=2, late=8, query_tokens=9,
        document_tokens=20, fields=2,
    )  # fmt: skip
    made = CrossEncoder(config).eval()
    ids, mask = torch.randint(1, 60, (3, 7)), torch.ones(3, 7, dtype=torch.int64)
    with torch.no_grad():
        query = made.read_query(ids, mask, torch.ones(3, 7))
        document = made.read_document(ids.flip(1), mask, torch.zeros_like(ids), torch.ones(3, 7))
        torch.testing.assert_close(made.score(query, document), made.late_score(query, document))
        made.head.bias.fill_(1.0)
        torch.testing.assert_close(made.score(query, document), made.late_score(query, document) + 1.0)
