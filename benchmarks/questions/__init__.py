"""Sixty everyday questions in SQL, as people type them: how many are answered, and how far off the answers are."""
