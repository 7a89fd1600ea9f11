"""Cross-Thought: predicts masked words with the help of neighboring sequences' embeddings, selected by attention.

Source: Cross-Thought section 3, Eq. 2-7; released code as in docs/papers.md, Cross-Thought. After the encoder, a cross-sequence
layer attends, separately for each of the N special tokens, over all M sequences of a sample; all N share its weights (the code). A
merge layer reads the results in place of the special tokens; its output predicts the masked tokens.

    B   samples     M   sequences of a sample       S   B · M       N   special tokens      L   subword tokens of a sequence
    n   heads       d   size of a head              H   hidden size Q, D    query sequences, ranked sequences
"""

import torch
from torch import Tensor, nn

from glow.nn.attention import MASKED_LOGIT
from glow.nn.sentence_encoder import SentenceConfig, SentenceEncoder, masked_bias
from glow.nn.towers import EncoderLayer

__all__ = ["CrossThought"]


class CrossThought(nn.Module):
    """An encoder with the two additional layers of pre-training.

    Args:
        config: shape of the encoder; both layers have the same.
    """

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = SentenceEncoder(config)
        self.cross = EncoderLayer(config.layer)
        self.merge = EncoderLayer(config.layer)

    def forward(self, ids: Tensor, mask: Tensor, sequences: int, offset: int = 1) -> Tensor:
        """Embeddings of every token, with information from the other sequences of its sample.

        Args:
            ids: int64 [S, L], samples one after another.
            mask: bool [S, L]; no other sequence attends to one with only padding.
            sequences: M, which divides S.
            offset: as `SentenceEncoder`.

        Returns:
            float [S, L, H].
        """
        return self.joined(self.encoder(ids, mask, offset), mask, sequences)

    def joined(self, states: Tensor, mask: Tensor, sequences: int) -> Tensor:
        """What `forward` makes of the encoder's states float [S, N + L, H]."""
        count = self.config.specials
        crossed = self.crossed(states[:, :count], mask.any(1), sequences).to(states.dtype)
        merged = torch.cat([crossed, states[:, count:]], 1)
        plain = torch.ones(merged.shape[:2], device=mask.device)
        return self.merge(merged, plain, masked_bias(mask, count))[:, count:]  # type: ignore[no-any-return]

    def crossed(self, specials: Tensor, there: Tensor, sequences: int) -> Tensor:
        """The cross-sequence layer (Eq. 3-4) over special tokens float [S, N, H], `there` bool [S]; float32 [S, N, H].

        It runs in float32, in which the fused kernel's memory grows with M and not with its square; the layer is small.
        """
        count, hidden = specials.shape[1:]
        with torch.autocast(specials.device.type, enabled=False):
            columns = specials.float().reshape(-1, sequences, count, hidden).transpose(1, 2)  # [B, N, M, H]
            rows = columns.reshape(-1, sequences, hidden)
            bias = (~there.reshape(-1, 1, sequences)) * MASKED_LOGIT  # [B, 1, M]
            bias = bias.expand(-1, count, -1).reshape(-1, 1, 1, sequences)
            plain = torch.ones(rows.shape[:2], device=rows.device)
            crossed = self.cross(rows, plain, bias)
        back = crossed.reshape(-1, count, sequences, hidden).transpose(1, 2)
        return back.reshape(-1, count, hidden)  # type: ignore[no-any-return]

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Sentence embeddings (Eq. 2): the encoder's special tokens, float32 [S, N, H]."""
        return self.encoder(ids, mask)[:, : self.config.specials].float()  # type: ignore[no-any-return]

    def ranking_vectors(self, specials: Tensor, side: str) -> Tensor:
        """Vectors whose inner product is the mean of the attention logits over special tokens and heads (Eq. 7, row 33).

        Args:
            specials: float [S, N, H], from `embed`.
            side: `query` or `document`.

        Returns:
            float32 [S, N · H]; one inner product, so any vector index can be used.
        """
        hidden = self.config.hidden
        begin = 0 if side == "query" else hidden
        weight, shift = self.cross.attention.qkv.weight, self.cross.attention.qkv.bias
        rows = slice(begin, begin + hidden)
        projected: Tensor = nn.functional.linear(
            specials.float(), weight[rows].float(), shift[rows].float()
        ).flatten(1)
        if side != "query":
            return projected
        heads = self.config.heads
        scaled: Tensor = projected / ((hidden / heads) ** 0.5 * heads * self.config.specials)
        return scaled

    def logits(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Attention logits before any mean (Eq. 7), float32 [N · n, Q, D], from special tokens [Q, N, H] and [D, N, H].

        The scale is a head's size, as in the released code; the paper uses the whole hidden size.
        """
        parts = self.config.specials * self.config.heads
        asked = self.ranking_vectors(queries, "query") * parts
        ranked = self.ranking_vectors(documents, "document")
        split = [vectors.reshape(len(vectors), parts, -1).transpose(0, 1) for vectors in (asked, ranked)]
        return split[0] @ split[1].transpose(1, 2)
