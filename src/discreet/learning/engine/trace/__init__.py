"""Records which operations of a forward pass use which parameter."""
