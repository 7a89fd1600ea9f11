"""The command that explains the hits of one query."""
