"""The applications: the command line (`cli`), the report (`report`), training from a file (`training`) and the demo."""
