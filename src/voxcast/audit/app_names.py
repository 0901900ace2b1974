"""The application of a job, from its name.

The parts that differ between the jobs of one application are dropped: folders and endings of
scripts, entities of BIDS (``sub-01``, ``ses-2``), what stands in parentheses (Nextflow's sample),
hashes and all numbers. ``recon_sub-01``, ``recon-17`` and ``/home/ann/Recon.sh`` are all `recon`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.runs.imported import NamePattern

NO_NAME = "(no name)"
ONLY_NUMBERS = "(numbers only)"
OTHER_NAME = "(other names)"
LONGEST = 256  # longer names are not searched

_ENDING = re.compile(r"\.(?:sh|bash|slurm|sbatch|sub|job|batch|cmd|pbs|qsub|py|r|m|jl)$")
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_ENTITY = re.compile(
    r"(?:^|(?<=[^a-z0-9]))(?:sub|subj|subject|ses|session|run|task|acq|dir|echo|part)[-=][a-z0-9]+"
)
_HASH = re.compile(
    r"(?:^|(?<=[^a-z0-9]))(?=[a-z]*[0-9])(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|"
    r"[0-9a-f]{8,64})(?=$|[^a-z0-9])"
)
_NUMBER = re.compile(r"v?[0-9]+(?:[.][0-9]+)*")
_GAP = re.compile(r"[-_.,:;=+%#@~\s\[\]{}()]+")


def app_of(name: str) -> str:
    """Return the application of a job with this name.

    Examples
    --------
    >>> app_of("recon_sub-01"), app_of("/home/ann/fMRIPrep-20.2.1.sh"), app_of("12")
    ('recon', 'fmriprep', '(numbers only)')
    """
    if not name:
        return NO_NAME
    text = name[:LONGEST].lower().rstrip("/").rpartition("/")[2]
    for pattern in (_ENDING, _IN_PARENTHESES, _ENTITY, _HASH, _NUMBER):
        text = pattern.sub(" ", text)
    return _GAP.sub("_", text).strip("_") or ONLY_NUMBERS


def apps_of(names: pd.Series, pattern: NamePattern | None = None) -> pd.Series:
    """Return the application of each job.

    Parameters
    ----------
    names : Series of category
        Names of the jobs.
    pattern : NamePattern, optional
        Takes the application out of a name, in place of the rules of this module; names that do
        not match are `OTHER_NAME`.
    """
    distinct = list(names.cat.categories)
    if pattern is None:
        apps = {name: app_of(name) for name in distinct}
    else:
        apps = {name: app or OTHER_NAME for name, app in pattern.values_in(distinct).items()}
    return names.map(apps).astype("category")
