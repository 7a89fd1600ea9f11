"""Encoders of which one task, the first time, does not end; in a file of their own, because Ray's processes import it."""

import os
import time

from glow_index_builder.encoding.blocks import Block, BlockEncoder

HELD_AFTER, NEVER_S = 8, 3_600.0


class HeldEncoder(BlockEncoder):
    """Once `HELD_AFTER` blocks are there, one task does not end; the file `held` in the folder names its process."""

    def encode(self, block: Block) -> Block:
        if len(list(self.folder.glob("*.json"))) >= HELD_AFTER:
            try:
                with (self.folder / "held").open("x") as file:
                    file.write(f"{os.getpid()}\n")
            except FileExistsError:
                pass
            else:
                time.sleep(NEVER_S)
        return super().encode(block)


class StuckEncoder(BlockEncoder):
    """The first task of block 0 never ends."""

    def encode(self, block: Block) -> Block:
        marker = self.folder / "stuck"
        if block.start == 0 and not marker.exists():
            marker.touch()
            time.sleep(NEVER_S)
        return super().encode(block)
