"""One file per statistic."""
