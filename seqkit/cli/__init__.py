"""The command line: one file per command with `run(args)`; the options of all are in `parser`."""
