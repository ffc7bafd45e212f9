"""What is asked and what it will cost: the question, its keys, the split of the budget, and the preview."""
