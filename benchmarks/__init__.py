"""Speed and utility side by side with other libraries: `python -m benchmarks.<area>`."""
