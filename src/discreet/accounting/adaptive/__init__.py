"""Spending that is decided as it goes: filters, odometers, and advice on what still fits."""
