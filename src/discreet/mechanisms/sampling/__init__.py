"""Exact samplers and the entropy that they draw from."""
