"""How the commands of this folder end: with an exit code, and one line where there is a problem."""

import sys
from collections.abc import Callable
from typing import NoReturn

from hlotune.schedules.errors import HlotuneError

MISUSE = 2
INTERRUPTED = 130
RECORDED = "what was recorded until then stays, and the same command goes on from it"
LOST = "it keeps nothing of what it has not printed; begin again"


def command(main: Callable[[], int | None], kept: str = LOST) -> NoReturn:
    """Runs a command and ends the process: 0 where `main` returns nothing, else what it returns.

    2 after an error of hlotune's own, 130 after Ctrl-C, each said in one line of stderr.

    Args:
        kept: what an interrupted command leaves, and how to go on.
    """
    try:
        code = main() or 0
    except KeyboardInterrupt:
        code = ended(INTERRUPTED, f"interrupted; {kept}")
    except HlotuneError as error:
        code = ended(MISUSE, " ".join(str(error).split()))
    sys.exit(code)


def ended(code: int, why: str) -> int:
    """Says why, under the name that the command was started by."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec else sys.argv[0]
    print(f"{name}: {why}", file=sys.stderr)
    return code
