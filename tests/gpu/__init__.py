"""Tests that need a GPU and torch alone."""
