"""`python -m undamped`, and the command `undamped`."""

import sys

from undamped._base.errors import MissingPackageError


def main() -> None:
    """Run the command line, or say in a sentence what it needs."""
    try:
        from undamped.lab.cli import main as run
    except MissingPackageError as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
