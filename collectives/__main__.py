"""`python -m collectives`: the same as the command `ringfold`."""

import sys

from collectives.cli import main

if __name__ == "__main__":
    sys.exit(main())
