"""Private training inside other people's loops: Hugging Face's Trainer, Lightning and Accelerate.

Each adapter replaces a framework's batches and backward pass by `PrivateGradients`, and switches off what would reveal
exact losses. No adapter imports its framework before it is used.
"""
