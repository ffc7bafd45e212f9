"""The databases that can keep a ledger, one module each; `registry.py` lists them."""
