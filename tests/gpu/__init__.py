"""Tests that need a GPU and torch alone; `research.gpu` runs them where nothing else is installed."""
