"""What most people see first: the command line (`cli`) and the report (`report`), thin over the Python API."""
