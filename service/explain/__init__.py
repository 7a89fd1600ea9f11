"""Only for `python -m service.explain`, as it was called before `glow explain`."""
