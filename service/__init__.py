"""The HTTP service: search one index version over JSON, and a page to try it from."""
