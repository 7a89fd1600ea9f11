"""Encoders for tests of a cluster: one task, the first time, does not end."""

import os
import time
from pathlib import Path

from glow_index_builder.encoding.shards import Shard, ShardEncoder, ShardReport

HELD_AFTER, NEVER_S = 8, 3_600.0


class HeldEncoder(ShardEncoder):
    """Once `HELD_AFTER` shards are there, one task does not end; the file `held` in the folder names its process."""

    def encode(self, shard: Shard) -> ShardReport | None:
        if len(list(self._folder.glob("*.json"))) >= HELD_AFTER:
            try:
                with (self._folder / "held").open("x") as file:
                    file.write(f"{os.getpid()}\n")
            except FileExistsError:
                pass
            else:
                time.sleep(NEVER_S)
        return super().encode(shard)


class StuckEncoder(ShardEncoder):
    """The first task of shard 0 never ends."""

    def encode(self, shard: Shard) -> ShardReport | None:
        marker = Path(self._folder) / "stuck"
        if shard.start == 0 and not marker.exists():
            marker.touch()
            time.sleep(NEVER_S)
        return super().encode(shard)
