"""Measurements that print their own report; `python -m benchmarks` lists them."""
