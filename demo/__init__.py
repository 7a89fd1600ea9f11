"""Example corpora for GLOW: programs that turn something everybody has into documents to search."""
