"""The libraries that cost models stand on, which an installation may lack, in words."""

from collections.abc import Iterator
from contextlib import contextmanager

from hlotune.schedules.errors import ModelError

PACKAGES = {"torch": "torch", "xgboost": "xgboost-cpu"}
"""Library to the smallest package of pip that brings it."""


@contextmanager
def needed_by(model: str) -> Iterator[None]:
    """Around the import of a model's module.

    Raises ModelError where a library is missing, with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise ModelError(
            f"the model {model} needs the library {error.name}, which is not installed; install it "
            f"with `pip install {PACKAGES[error.name]}`, or choose another model"
        ) from error
