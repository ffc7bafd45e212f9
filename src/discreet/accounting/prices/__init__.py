"""Prices of events that are not part of the basic language: one file per event, or per family of events."""
