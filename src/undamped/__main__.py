"""`python -m undamped` is the command line too."""

from undamped.cli import main

if __name__ == "__main__":
    main()
