"""Questions and answers as JSON: what a client sends to a server, and what comes back."""
