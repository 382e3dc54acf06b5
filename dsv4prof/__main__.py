"""`python -m dsv4prof`, for torchrun and for environments without the script on PATH."""

from dsv4prof.cli.app import main

if __name__ == "__main__":
    main()
