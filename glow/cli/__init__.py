"""The command `glow`: its verbs, and how one is found. Light, so that `glow --help` is there at once."""

from glow.cli.app import app, main
from glow.cli.verbs import GROUPS, VERBS, Verb

__all__ = ["GROUPS", "VERBS", "Verb", "app", "main"]
