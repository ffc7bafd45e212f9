"""What a private table is: where its rows come from, what may be computed from a row, and who is protected."""
