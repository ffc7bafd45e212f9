"""The traced graph of a clipped sum: what it contains, passes that reorder it, and how it is compiled and launched."""
