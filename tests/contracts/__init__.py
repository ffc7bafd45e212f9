"""One suite per abstraction: every mechanism passes the same checks, and its mutants fail them."""
