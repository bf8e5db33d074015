"""`python -m undamped`, and the command `undamped`."""

import os
import sys

from undamped._base.errors import MissingPackageError


def main() -> None:
    """Run the command line, or say in a sentence what it needs."""
    # Idle OpenMP threads spin by default. Where other programs need the cores, a training with two
    # threads then takes twenty times as long. The variable is read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from undamped.lab.cli import main as run
    except MissingPackageError as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
