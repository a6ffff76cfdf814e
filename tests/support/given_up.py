"""Work that Ctrl-C meets, and that goes on all the same."""

import os
import signal
import threading

LONGEST_S = 60.0
"""More than anything takes here."""


def met_by_ctrl_c(gate: threading.Event) -> None:
    """Sends Ctrl-C, and comes back once the gate is open, whatever is raised in this thread until
    then, as from a call of XLA.
    """
    try:
        os.kill(os.getpid(), signal.SIGINT)
        gate.wait(LONGEST_S)
    finally:
        gate.wait(LONGEST_S)
