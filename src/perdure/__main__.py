"""``python -m perdure`` is ``perdure``."""

import sys

from perdure.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
