"""The version of our code generation.

Raise it when a schedule may compile to other machine code than before, or is run
otherwise: times are kept under it.
"""

CODEGEN_VERSION = "35"
