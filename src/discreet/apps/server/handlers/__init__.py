"""One function for each call: from a checked request to JSON values."""
