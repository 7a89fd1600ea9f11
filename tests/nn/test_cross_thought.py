"""Cross-Thought: golden positions, what a masked word sees, and vectors that an index serves."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glow.index.vectors import SearchParams, build_dense
from glow.nn import (
    CrossThought,
    Pretrainer,
    PretrainingBatch,
    PretrainingKind,
    SentenceConfig,
    SentenceEncoder,
)
from glow.nn.pretraining import crop_loss
from research.pretraining import attention_shares

CONFIG = SentenceConfig(
    vocabulary=50, hidden=16, layers=1, heads=2, intermediate=32, specials=3, positions=40, dropout=0.0
)


def batch_of(
    ids: torch.Tensor,
    mask: torch.Tensor,
    targets: torch.Tensor,
    decoded: tuple[torch.Tensor, torch.Tensor] | None = None,
    crops: torch.Tensor | None = None,
    sequences: int = 1,
    offset: int = 1,
) -> PretrainingBatch:
    """Texts whose `targets` are masked; a decoder reads the same unless it is given others."""
    masked = ids.masked_fill(targets, 4)
    crops = torch.zeros(2, len(ids), dtype=torch.int64) if crops is None else crops
    return PretrainingBatch(
        ids, mask, masked, targets, *(decoded or (masked, targets)), crops, sequences, offset
    )


def every_fourth(mask: torch.Tensor) -> torch.Tensor:
    targets = torch.zeros_like(mask)
    targets[:, 3::4] = True
    return targets


@pytest.fixture
def model() -> CrossThought:
    torch.manual_seed(0)
    made = Pretrainer("cross-thought", CONFIG)
    assert made.crossed is not None
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.crossed.eval()


def sequences(count: int, length: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(5, 50, (count, length), generator=torch.Generator().manual_seed(1))
    return ids, torch.ones(count, length, dtype=torch.bool)


@pytest.mark.parametrize(("offset", "first", "last"), [(1, 5, 68), (442, 446, 509)])
def test_golden_positions(offset: int, first: int, last: int) -> None:
    """Golden G8: five special tokens at 0 to 4, then 64 tokens, wherever the draw puts them (row 34)."""
    sizes = {"vocabulary": 5, "hidden": 1, "layers": 1, "heads": 1, "intermediate": 1}
    config = SentenceConfig(**sizes, specials=5, positions=512, dropout=0.0)
    encoder = SentenceEncoder(config)
    encoder.words.weight.data.zero_()
    encoder.specials.weight.data.zero_()
    encoder.positions.weight.data[:, 0] = torch.arange(512.0)
    encoder.embedding_norm = torch.nn.Identity()  # type: ignore[assignment]
    found = encoder.embed(torch.zeros(1, 64, dtype=torch.int64), offset)[0, :, 0].tolist()
    assert found == [*range(5), *range(first, last + 1)]
    assert config.most_offset(64) == 444


def test_special_tokens_differ(model: CrossThought) -> None:
    """Row 36: N embeddings, so N states."""
    ids, mask = sequences(2)
    found = model.embed(ids, mask)
    assert (found[:, 0] - found[:, 1]).abs().max() > 1e-3 and (found[:, 1] - found[:, 2]).abs().max() > 1e-3


def test_a_piece_sees_its_neighbours_special_states_alone(model: CrossThought) -> None:
    """A changed neighbour of the same sample changes a sequence's states; one of another sample does not, and nor does its own padding."""
    ids, mask = sequences(6)
    states = model(ids, mask, 3)
    other = ids.clone()
    other[1] = (other[1] + 7) % 50
    changed = model(other, mask, 3)
    assert (changed[0] - states[0]).abs().max() > 1e-4 and torch.allclose(changed[3:], states[3:], atol=1e-6)
    # All that a neighbour says goes through its special states: its other states change nothing, and they everything.
    encoded, swapped = model.encoder(ids, mask), model.encoder(ids, mask)
    swapped[1] = model.encoder(other, mask)[1]
    swapped[1, :3] = encoded[1, :3]
    kept = model.joined(swapped, mask, 3)
    assert torch.equal(kept[0], states[0]) and (kept[1] - states[1]).abs().max() > 1e-4
    encoded[1, :3] = model.embed(other, mask)[1]
    torch.testing.assert_close(model.joined(encoded, mask, 3)[0], changed[0], atol=1e-6, rtol=0)


def test_padding_says_nothing(model: CrossThought) -> None:
    ids, mask = sequences(3)
    states = model(ids, mask, 3)
    longer = torch.cat([ids, torch.randint(0, 50, (3, 4))], 1)
    with_padding = model(longer, torch.cat([mask, torch.zeros(3, 4, dtype=torch.bool)], 1), 3)
    assert torch.allclose(with_padding[:, :8], states, atol=1e-5)
    # A sequence of padding alone, as the end of a corpus has, is seen by no other.
    ids4, mask4 = torch.cat([ids, ids[:1]]), torch.cat([mask, torch.zeros(1, 8, dtype=torch.bool)])
    assert torch.allclose(model(ids4, mask4, 4)[:3], states, atol=1e-5)


def test_one_inner_product_of_an_index_is_the_mean_of_the_logits(model: CrossThought) -> None:
    """Row 33, and the index that the builder writes serves it."""
    ids, mask = sequences(20)
    specials = model.embed(ids, mask).detach()
    logits = model.logits(specials[:4], specials).detach()
    assert logits.shape == (6, 4, 20)
    asked, ranked = (model.ranking_vectors(specials, side).detach() for side in ("query", "document"))
    assert torch.allclose(asked[:4] @ ranked.T, logits.mean(0), atol=1e-5)
    scores, rows = build_dense(ranked.numpy(), "flat").search(asked[:4].numpy(), 5, SearchParams())
    assert np.array_equal(rows, logits.mean(0).topk(5).indices.numpy())
    assert scores == pytest.approx(logits.mean(0).topk(5).values.numpy(), abs=1e-5)
    # The logits are those of the layer that was trained.
    attention = model.cross.attention
    over = attention.probabilities(specials[None, :, 1], torch.ones(1, 20), torch.zeros(1, 1, 1, 20))[0]
    assert torch.allclose(over[:, :4], logits[2:4].softmax(-1), atol=1e-5)


def test_crops_must_find_each_other_both_ways() -> None:
    first, second = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0.8, 0.6], [0.6, -0.8]])
    cosines = [[0.8, 0.6], [0.96, -0.28]]
    rows = [math.log(sum(math.exp((c - cosines[i][i]) / 0.05) for c in cosines[i])) for i in (0, 1)]
    columns = [
        math.log(sum(math.exp((cosines[j][i] - cosines[i][i]) / 0.05) for j in (0, 1))) for i in (0, 1)
    ]
    wanted = (sum(rows) / 2 + sum(columns) / 2) / 2
    assert float(crop_loss(first, second)) == pytest.approx(wanted, abs=1e-4)
    assert abs(sum(rows) - sum(columns)) > 0.1


def test_crops_begin_where_they_were_drawn() -> None:
    torch.manual_seed(0)
    made, (ids, mask) = Pretrainer("crops", CONFIG).eval(), sequences(4)
    losses = []
    for start in (0, 3):
        crops = torch.stack([torch.zeros(4, dtype=torch.int64), torch.full((4,), start)])
        losses.append(float(made(batch_of(ids, mask, torch.zeros_like(mask), crops=crops)).detach()))
    assert abs(losses[0] - losses[1]) > 1e-4


def test_the_decoder_reads_its_own_masks_and_its_loss_counts() -> None:
    torch.manual_seed(0)
    made = Pretrainer("retro", CONFIG).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ids, mask = sequences(4)
    targets, more = torch.zeros_like(mask), torch.zeros_like(mask)
    targets[:, 2] = more[:, 3:7] = True

    def loss(decoded: torch.Tensor, wanted: torch.Tensor) -> float:
        return float(made(batch_of(ids, mask, targets, (ids.masked_fill(decoded, 4), wanted))).detach())

    whole = loss(more, more)
    assert abs(loss(targets, more) - whole) > 1e-3
    assert abs(loss(more, targets) - whole) > 1e-3


def test_the_second_loss_tells_visible_tokens_from_special_ones_by_hand() -> None:
    torch.manual_seed(0)
    made, plain = (Pretrainer("cross-thought", CONFIG, bag).eval() for bag in (2.0, 0.0))
    plain.load_state_dict(made.state_dict())
    ids, mask = sequences(4)
    mask[:, 6:] = False
    targets = torch.zeros_like(mask)
    targets[:, 2] = True
    batch = batch_of(ids, mask, targets, sequences=2)
    assert made.head is not None
    with torch.no_grad():
        masked = ids.masked_fill(targets, 4)
        shares = made.head(made.encoder(masked, mask, 1)[:, :3].mean(1)).softmax(-1)
        told = [float(shares[row, ids[row, place]].log()) for row in range(4) for place in (0, 1, 3, 4, 5)]
        assert float(made(batch) - plain(batch)) == pytest.approx(-2.0 * float(np.mean(told)), rel=1e-5)


@pytest.mark.parametrize("kind", ["cross-thought", "mlm", "retro"])
def test_nothing_of_a_masked_piece_reaches_what_predicts_it(kind: PretrainingKind) -> None:
    """Two texts that differ only in their masked tokens give the output head the same states."""
    torch.manual_seed(0)
    model = Pretrainer(kind, CONFIG).eval()
    ids, mask = sequences(4, 12)
    targets, seen = every_fourth(mask), list[torch.Tensor]()
    assert model.head is not None
    model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    texts = (ids, torch.where(targets, (ids + 9) % 45 + 5, ids))
    losses = [float(model(batch_of(text, mask, targets, sequences=4)).detach()) for text in texts]
    half = len(seen) // 2
    assert all(torch.equal(one, other) for one, other in zip(seen[:half], seen[half:], strict=True))
    assert losses[0] != losses[1]


@pytest.mark.parametrize("kind", ["cross-thought", "mlm", "retro", "crops"])
def test_every_objective_learns(kind: PretrainingKind) -> None:
    """Thirty steps over one batch of text that repeats itself."""
    torch.manual_seed(0)
    model = Pretrainer(kind, CONFIG)
    ids, mask = sequences(8, 12)
    crops = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0], [6, 5, 4, 3, 2, 1, 0, 6]])
    batch = batch_of(ids, mask, every_fourth(mask), crops=crops, sequences=4, offset=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(30):
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0] and np.isfinite(losses).all()


def test_memory_of_the_cross_sequence_layer_grows_with_the_sequences_not_their_square(
    model: CrossThought,
) -> None:
    """No tensor of its step is M × M, though M is larger than any other size of it."""
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            made = function(*args, **(kwargs or {}))
            for each in made if isinstance(made, tuple | list) else (made,):
                if isinstance(each, torch.Tensor):
                    largest = max(largest, each.numel())
            return made

    sizes = []
    for count in (128, 256):
        largest = 0
        with Watch():
            model.crossed(
                torch.randn(count, 3, 16), torch.ones(count, dtype=torch.bool), count
            ).sum().backward()
        sizes.append(largest)
    assert sizes[1] <= 2.1 * sizes[0]


def test_golden_shares_of_attention_with_the_query_itself_and_without() -> None:
    """Golden G8: mean attention (Eq. 7) of two heads, one query that sees itself and two candidates."""
    own, candidates = torch.tensor([[2.0], [0.0]]), torch.tensor([[[1.0, 0.0]], [[2.0, 1.0]]])
    with_own, alone = attention_shares(candidates, own), attention_shares(candidates)
    torch.testing.assert_close(with_own, torch.tensor([[0.454985, 0.167380]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(alone, torch.tensor([[0.731059, 0.268941]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"hidden": 10, "heads": 3}, "not a multiple of heads"),
        ({"specials": 5, "positions": 5}, "no position"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SentenceConfig(vocabulary=5, **shape)
