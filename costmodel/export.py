"""Trained models in forms that other programs read."""

import json
from pathlib import Path

import numpy as np

from hlotune.costmodel.boosters import checked_booster
from hlotune.costmodel.files import features_key, in_words, read_file
from hlotune.costmodel.inputs import columns
from hlotune.costmodel.libraries import needed_by
from hlotune.schedules.atomic_files import whole


def write_foreign(source: Path, out: Path) -> None:
    """Trees as xgboost's JSON, which names the features; other models as `.npz` of plain arrays.

    Features of another version than this one's have no names.  To what trees say a share of the
    roofline's log2 of speed is to be added (`roofline.log_speed`): their attribute `start`.

    Raises ModelError where the source is no model, OSError where the file cannot be written.
    """
    header, arrays = read_file(source)
    if "booster" not in arrays:
        with whole(out) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        return
    with needed_by(header.model):
        import xgboost

    booster = xgboost.Booster()
    with in_words(source):
        booster.load_model(checked_booster(arrays["booster"]))
    names = columns("summary")
    if header.features == features_key("summary") and booster.num_features() == len(names):
        booster.feature_names = list(names)
    booster.set_attr(start=str(arrays.get("start", 0.0)))
    text = json.loads(bytes(booster.save_raw("json")))
    with whole(out) as part:
        part.write_text(json.dumps(text, sort_keys=True), encoding="utf-8")
