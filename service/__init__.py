"""The HTTP service: a JSON API over the live index version, and a search page."""
