"""The dry run: finds every use of every parameter on three examples, and checks that examples do not affect each other.

Three examples of the first batch go through the model, in float64 where the model allows it, with slightly moved
parameters (a weight that is exactly zero hides what depends on it). Ordinary gradients of each example's loss are the
reference. A parameter whose rules reproduce its norms and its gradients keeps them; any other goes through the
fallback, which has to reproduce them too. A parameter that nothing reproduces is an error.
"""
