"""The site: `make docs` builds it from docs/, docstrings, notebooks and recipes, and checks every link of it."""
