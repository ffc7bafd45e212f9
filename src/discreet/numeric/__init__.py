"""Numbers: directed rounding, exact rationals, and searches."""
