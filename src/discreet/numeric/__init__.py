"""Numerical helpers that every package may use: directed rounding, exact rationals, and bisection."""
