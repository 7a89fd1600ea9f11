"""The versions that a shard has open: the live one of its root, and those that routers ask for by name.

A router goes on with the versions of its set until it follows to the next, so what is published in the shard's own root in
the meantime must not take them away.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from glow.errors import MismatchError
from glow.search import Index
from glow_service.errors import VersionNotOpenError

__all__ = ["KEPT", "ShardVersions"]

KEPT = 3
"""Versions that are kept open for routers: the set's that is live, the one that comes, and one for a router that is late."""


class ShardVersions:
    """Versions by name; safe to use from many threads.

    Args:
        live: the live version.
        load: opens another one by its name.
    """

    def __init__(self, live: Callable[[], Index], load: Callable[[str], Index]) -> None:
        self._live = live
        self._load = load
        self._open: OrderedDict[str, Index] = OrderedDict()
        self._lock = threading.Lock()
        self._opening = threading.Lock()

    def get(self, version: str) -> Index:
        """An open version.

        Raises:
            VersionNotOpenError: if it is not open: a router asks for it with `open`, which may take its time.
        """
        with self._lock:
            index = self._open.get(version)
            if index is not None:
                self._open.move_to_end(version)
                return index
        live = self._live()
        if live.version != version:
            raise VersionNotOpenError(
                f"version {version} is not open here, {live.version} is live; open it first"
            )
        self._keep(live)
        return live

    def _keep(self, index: Index) -> None:
        """Holds a version that a router asked for, be it live or not: another may be live in a moment."""
        with self._lock:
            self._open[index.version] = index
            self._open.move_to_end(index.version)
            while len(self._open) > KEPT:
                self._open.popitem(last=False)

    def open(self, version: str, manifest: str) -> Index:
        """Opens a version, or finds it open, and keeps it; one after the other, for as long as loading takes.

        Raises:
            MismatchError: if its manifest has another hash: the shard's root holds another build under that name.
            ArtifactError, ConfigError, DeviceError: if it cannot be opened.
        """
        with self._opening:
            try:
                index = self.get(version)
            except VersionNotOpenError:
                index = self._load(version)
            if index.manifest.hash != manifest:
                raise MismatchError(
                    f"version {version} of this shard has a manifest of the hash {index.manifest.hash[:12]}, the set "
                    f"expects {manifest[:12]}; copy the version of the set here, or build the set again"
                )
            self._keep(index)
        return index
