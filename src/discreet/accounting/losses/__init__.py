"""Privacy losses: how much one output tells the two neighbours apart, as a distribution."""
