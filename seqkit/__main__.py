"""`python -m seqkit` is `seqkit`."""

import sys

from seqkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
