"""The version of our code generation: raise it when a schedule may compile to other machine code than before."""

CODEGEN_VERSION = "1"
