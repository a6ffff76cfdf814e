"""`python -m hlotune` is `tune`."""

import sys

from hlotune.schedules.garbage import searched_seldom


def main() -> None:
    """Ctrl-C may come as early as it likes: while commands are still being imported."""
    try:
        searched_seldom()
        from hlotune.cli.main import main as command

        command()
    except KeyboardInterrupt:
        print("tune: interrupted before anything began", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
