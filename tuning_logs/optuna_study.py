"""Trials as Optuna studies, one a kernel, in an SQLite file that Optuna's dashboard opens.

A parameter is what a step does to a loop, as `Split out i0`, and its value what the step is told,
as `91,32,2`; `algorithm` is a parameter too.  Values of a study are seconds, the less the better.
"""

import errno
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import VersionError
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.rows import Row
from hlotune.tuning_logs.text import escaped

ALGORITHM = "algorithm"
Parameters = Mapping[str, int | str]


def export_optuna(database: Database, path: Path) -> int:
    """Writes all trials of candidates; returns how many.  The file appears whole or not at all.

    Raises:
        VersionError: there is no Optuna.
        OSError: the file cannot be written.
    """
    optuna = _optuna()
    kernels = _trials(database)
    with whole(path) as part:
        if not part.is_file():
            raise OSError(errno.EINVAL, "no file, and studies need one that can be read again")
        storage = optuna.storages.RDBStorage(f"sqlite:///{part}")
        for name, trials in kernels.items():
            _write(optuna, storage, name, trials)
        storage.remove_session()
        storage.engine.dispose()
    return sum(map(len, kernels.values()))


def parameters_of(schedule: Mapping[str, Any]) -> dict[str, int | str]:
    """A schedule as named values: whole numbers where a step is told one, else texts."""
    found: dict[str, int | str] = {ALGORITHM: str(schedule["algorithm"])}
    seen = Counter[str]()
    for kind, *arguments in schedule["steps"]:
        words = [str(x) for x in arguments if isinstance(x, str)]
        told = [x for x in arguments if not isinstance(x, str)]
        name = " ".join([kind, *words])
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} #{seen[name]}"] = _value(told)
    return found


def _value(told: Sequence[Any]) -> int | str:
    numbers = told[0] if len(told) == 1 and isinstance(told[0], list) else told
    if len(numbers) == 1 and type(numbers[0]) is int:
        return numbers[0]
    return ",".join(x if isinstance(x, str) else json.dumps(x) for x in numbers) or "yes"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise VersionError(
            f"expected the package optuna, which writes studies, got none ({error}); install it: "
            "pip install 'hlotune[optuna]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _trials(database: Database) -> dict[str, list[tuple[Row, Parameters]]]:
    """By study; rows that do not parse are left out and counted as unreadable."""
    found: dict[str, list[tuple[Row, Parameters]]] = {}
    rows = database.query(
        """select trials.*, coalesce(label, '') as label from trials
        join kernels on key = kernel order by recorded, number, id"""
    )
    for row in rows:
        try:
            trial = (row, parameters_of(json.loads(row["schedule"])))
        except (KeyError, TypeError, ValueError):
            database.unreadable += 1
        else:
            name = f"{escaped(row['label'])} {row['kernel'][:8]}".strip()
            found.setdefault(name, []).append(trial)
    return found


def _write(optuna: Any, storage: Any, name: str, trials: Sequence[tuple[Row, Parameters]]) -> None:
    spaces = _distributions(optuna, [parameters for _, parameters in trials])
    study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
    study.add_trials([_frozen(optuna, row, parameters, spaces) for row, parameters in trials])


def _distributions(optuna: Any, trials: Iterable[Parameters]) -> dict[str, Any]:
    """What a parameter of a study may be: the whole numbers between its values, or the values."""
    values: dict[str, set[int | str]] = {}
    for parameters in trials:
        for name, value in parameters.items():
            values.setdefault(name, set()).add(value)
    made = optuna.distributions
    return {
        name: made.IntDistribution(min(seen), max(seen))
        if all(isinstance(x, int) for x in seen)
        else made.CategoricalDistribution(sorted(map(str, seen)))
        for name, seen in values.items()
    }


def _frozen(optuna: Any, row: Row, parameters: Parameters, spaces: Mapping[str, Any]) -> Any:
    """A trial of Optuna: complete with its seconds, or failed."""
    named = {
        name: str(value)
        if isinstance(spaces[name], optuna.distributions.CategoricalDistribution)
        else value
        for name, value in parameters.items()
    }
    time_s = row["time_s"]
    state = optuna.trial.TrialState.COMPLETE if time_s is not None else optuna.trial.TrialState.FAIL
    about = {"kernel": row["kernel"], "recorded": row["recorded"]}
    if row["failure_kind"]:
        about["failure"] = row["failure_kind"]
    trial = optuna.trial.create_trial(
        state=state,
        value=time_s,
        params=named,
        distributions={name: spaces[name] for name in named},
        user_attrs=about,
    )
    trial.datetime_start = trial.datetime_complete = datetime.fromisoformat(
        row["recorded"]
    ).replace(tzinfo=None)
    return trial
