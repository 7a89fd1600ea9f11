"""Faults planted in the papers' code, one at a time: the tests that do not notice one are not good enough."""
