"""From events to privacy losses: how much one output tells two neighbors apart, as a distribution."""
