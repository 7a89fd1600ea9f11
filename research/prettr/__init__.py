"""PreTTR's Tables 3 to 5 on three and six small layers, beside late interaction (docs/papers/prettr.md)."""
