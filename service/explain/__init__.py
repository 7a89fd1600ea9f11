"""Only for `python -m service.explain`, the former name of `glow explain`."""
