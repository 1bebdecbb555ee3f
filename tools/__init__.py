"""Tools of the repository, which the package does not need."""
