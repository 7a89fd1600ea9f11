"""The command line `glow`: its commands and their lazy loading, which keeps `glow --help` fast."""

from glow.cli.app import app, main
from glow.cli.verbs import GROUPS, VERBS, Verb

__all__ = ["GROUPS", "VERBS", "Verb", "app", "main"]
