"""Reasons for hits, for the service and for a terminal: `python -m service.explain`."""
