"""Poisson-sampled Gaussians at small rates: rare large losses by a formula, the rest on a short, fine grid."""
