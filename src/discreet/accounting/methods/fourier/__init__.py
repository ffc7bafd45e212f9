"""Tilted Fourier inversion: fast at any number of steps, for losses with a smooth part."""
