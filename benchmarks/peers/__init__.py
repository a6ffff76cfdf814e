"""hlotune against what a user would take instead, on the same operations, in one run.

    python -m benchmarks.peers.environments     sets up the other libraries under build/peers
    python -m benchmarks.peers                  measures and prints the table

`contestants.py` says what takes part and in which forms.  Each library is a process of its own:
`worker.py` is its side, with one module a library beside it; `process.py` is ours.  `rounds.py`
times all of them in turns, `passes.py` keeps what was found, `table.py` reads it, and `trials.py`
the records behind it; `shortfalls.py` names what is not good enough, with its loops; `searches.py`
compares how long the searches of hlotune and TVM took.
"""
