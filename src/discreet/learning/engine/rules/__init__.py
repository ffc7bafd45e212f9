"""One rule per operation: from inputs and output gradients to norms and weighted sums."""
