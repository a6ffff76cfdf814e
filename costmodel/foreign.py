"""Trained models in forms that other programs read."""

import json
from pathlib import Path

import numpy as np

from hlotune.costmodel.files import read_file
from hlotune.costmodel.inputs import columns


def write_foreign(source: Path, out: Path) -> None:
    """Trees as xgboost's JSON, which names the features; other models as `.npz` of plain arrays.

    Raises ModelError where the source is no model.
    """
    _, arrays = read_file(source)
    if "booster" not in arrays:
        with out.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        return
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(bytearray(arrays["booster"].tobytes()))
    names = columns("summary")
    if booster.num_features() == len(names):
        booster.feature_names = list(names)
    text = json.loads(bytes(booster.save_raw("json")))
    out.write_text(json.dumps(text, sort_keys=True), encoding="utf-8")
