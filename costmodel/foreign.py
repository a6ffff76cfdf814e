"""Trained models in forms that other programs read."""

import json
from pathlib import Path

import numpy as np

from hlotune.costmodel.files import features_key, read_file
from hlotune.costmodel.inputs import columns


def write_foreign(source: Path, out: Path) -> None:
    """Trees as xgboost's JSON, which names the features; other models as `.npz` of plain arrays.

    Features of another version than this one's have no names.

    Raises ModelError where the source is no model.
    """
    header, arrays = read_file(source)
    if "booster" not in arrays:
        with out.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        return
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(bytearray(arrays["booster"].tobytes()))
    names = columns("summary")
    if header.features == features_key("summary") and booster.num_features() == len(names):
        booster.feature_names = list(names)
    text = json.loads(bytes(booster.save_raw("json")))
    out.write_text(json.dumps(text, sort_keys=True), encoding="utf-8")
