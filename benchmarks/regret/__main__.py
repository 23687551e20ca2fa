"""``python -m benchmarks.regret``."""

import sys

from benchmarks.regret.program import main

if __name__ == "__main__":
    sys.exit(main())
