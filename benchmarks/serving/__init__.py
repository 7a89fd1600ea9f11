"""Measurements of the running service, and what they share."""
