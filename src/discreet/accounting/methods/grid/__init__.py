"""Discretized privacy losses, composed by FFT: for losses with atoms, and wherever Fourier inversion declines."""
