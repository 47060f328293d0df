"""What tacit and its peers run, state and take, measured by one command: see `__main__`."""
