"""The HTTP edge: bodies, checks, routes, problems."""
