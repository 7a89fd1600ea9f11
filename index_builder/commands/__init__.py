"""The commands of the builder, one file for each family."""

from glow_index_builder.commands.app import app

__all__ = [
    "app",
]
