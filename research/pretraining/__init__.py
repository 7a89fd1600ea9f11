"""Pre-training objectives compared at equal tokens, from chance and from pre-trained layers."""
