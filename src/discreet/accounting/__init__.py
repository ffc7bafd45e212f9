"""Event → Guarantee: what a thing that was run costs. Pure functions that know nothing of mechanisms or data."""
