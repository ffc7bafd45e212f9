"""Statistics of arrays, one file each; `analytics.aggregates` uses the same bounds and finishes for tables."""
