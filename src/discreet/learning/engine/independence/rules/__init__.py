"""One rule per aten operation: from what its inputs depend on to what its outputs depend on."""
