"""What tests of writes share with those of shards: made documents."""

from tests.shards.conftest import corpus

__all__ = ["corpus"]
