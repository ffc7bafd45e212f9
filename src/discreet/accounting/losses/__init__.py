"""Privacy losses: how much one output tells the two neighbors apart, as a distribution."""
