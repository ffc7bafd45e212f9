"""The methods that turn a privacy loss into δ(ε) or ε(δ), and which of them takes a question."""
