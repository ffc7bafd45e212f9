"""From the user's data to batches: `records` fetches rows, `sampling` draws who is in a batch, `batches` joins them."""
