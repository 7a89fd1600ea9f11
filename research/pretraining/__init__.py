"""Compares pre-training objectives at equal tokens, from random and from pre-trained layers."""
