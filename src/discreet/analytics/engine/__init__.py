"""What runs in the user's engine: rows become integers there, which are summed by group and read back."""
