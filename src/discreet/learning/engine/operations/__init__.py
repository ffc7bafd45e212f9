"""One file per operation: the handler that recognizes it in a forward pass, and the rules for its parameters.

To add an operation, write its file with a table `HANDLERS` and list the file in `registry.py`.
"""
