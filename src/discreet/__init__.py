"""Discreet: one privacy budget for everything that touches your data."""
__version__ = "0.1.0"
