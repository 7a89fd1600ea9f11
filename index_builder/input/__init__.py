"""Reads input: files, directories and streams of lines, and records rejected lines."""
