"""The command line: one file per command, each with `add(commands)` for its options and `run(args)`."""
