"""Imported by the server that commands are forked from: a first command, which says nothing.

It brings what the command line imports as it runs.  What lives by then is left out of every search
for garbage: each would write to the memory that a command has in common with the server.
"""

import gc
import io
from contextlib import redirect_stdout

from hlotune.cli.main import run_command
from hlotune.schedules.garbage import searched_seldom

with redirect_stdout(io.StringIO()):
    run_command(["db", "ls", "--help"])
gc.collect()
gc.freeze()
searched_seldom()
