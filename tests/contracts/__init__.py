"""One suite per abstraction: every mechanism passes the same checks, and mutants of them fail."""
