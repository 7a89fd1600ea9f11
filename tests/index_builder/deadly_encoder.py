"""A block encoder that dies as towers of real models may; worker processes import it by this file's name.

It lies apart from the tests, because a process that is started anew can import only what has a plain name.
"""

import os
import signal

from glow.index.stored_fields import DocumentStore
from glow_index_builder.encoding.blocks import Block, BlockEncoder


class DeadlyEncoder(BlockEncoder):
    """Ends its process at a document `poison…` whenever it meets it, and at `once…` the first time."""

    def encode(self, block: Block) -> Block:
        skipped = {row for row, _ in block.skip}
        for row, document in enumerate(DocumentStore(self.store).scan(block.start, block.stop), block.start):
            if row in skipped:
                continue
            died = self.folder.parent / f"died-{document.id}"
            if document.id.startswith("poison") or (document.id.startswith("once") and not died.exists()):
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(block)
