"""A shard encoder that dies as towers of real models may; worker processes import it by this file's name.

It lies apart from the tests, because a process that is started anew can import only what has a plain name.
"""

import os
import signal

from glow_index_builder.encoding.shards import Shard, ShardEncoder, ShardReport


class DeadlyEncoder(ShardEncoder):
    """Ends its process at a document `poison…` whenever it meets it, and at `once…` the first time."""

    def encode(self, shard: Shard) -> ShardReport | None:
        """As `ShardEncoder.encode`, if it lives so long."""
        skipped = {row for row, _ in shard.skip}
        for row, document in enumerate(self._store.scan(shard.start, shard.stop), shard.start):
            if row in skipped:
                continue
            died = self._folder.parent / f"died-{document.id}"
            if document.id.startswith("poison") or (document.id.startswith("once") and not died.exists()):
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(shard)
