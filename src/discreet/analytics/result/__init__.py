"""What comes out: released numbers with their errors, free post-processing, and pictures."""
