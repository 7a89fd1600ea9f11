"""An encoder for tests of a cluster: every shard takes a moment, and one, the first time, does not end."""

import time
from pathlib import Path

from glow_index_builder.encoding.encode import ShardEncoder
from glow_index_builder.encoding.shards import Shard, ShardReport

SHARD_S, NEVER_S = 0.15, 3_600.0


class SlowEncoder(ShardEncoder):
    """Waits before each shard."""

    def encode(self, shard: Shard) -> ShardReport | None:
        """As `ShardEncoder.encode`, later."""
        time.sleep(SHARD_S)
        return super().encode(shard)


class StuckEncoder(ShardEncoder):
    """The first task of shard 0 never ends."""

    def encode(self, shard: Shard) -> ShardReport | None:
        """As `ShardEncoder.encode`."""
        marker = Path(self._folder) / "stuck"
        if shard.start == 0 and not marker.exists():
            marker.touch()
            time.sleep(NEVER_S)
        return super().encode(shard)
