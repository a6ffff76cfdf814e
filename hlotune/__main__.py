"""`python -m hlotune` is `tune`."""

from hlotune.cli.main import main

if __name__ == "__main__":
    main()
