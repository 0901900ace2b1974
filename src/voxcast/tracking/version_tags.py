"""Tags of a version of the registered model: its promotion, and what became of it, for a search.

MLflow compares tags as text: ``client.search_model_versions("tags.reason = 'better'")``. The same
facts and more are in the bundle and in the receipts.
"""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxcast.serving.bundle import Bundle

NO_VERSION = "none"
MAX_HOSTS = 5_000  # characters; MLflow has room for more


def record_tags(bundle: Bundle, promoted: str, git_commit: str) -> dict[str, str]:
    """Return the tags of a promotion; what is not known has none.

    Parameters
    ----------
    bundle : Bundle
        Of the version.
    promoted : str
        Application for which the version is made.
    git_commit : str
        Commit of the project when the model was trained; empty if it is not known.

    Returns
    -------
    dict of str to str
        ``promoted`` (the application), ``family``, ``reason``, ``table_sha256``, ``app_version``,
        ``hosts``, ``calibrated``, ``cv_objective``; where two models were compared
        ``challenger_error`` and ``champion_error``, mean log errors on the same held-out subjects;
        and ``git_commit``.
    """
    served = bundle.apps[promoted]
    promotion = served.promotion
    comparison = promotion.evidence.get("comparison") or {}
    errors = {
        f"{name}_error": f"{comparison[name]['value']:.5f}"
        for name in ("challenger", "champion")
        if name in comparison and comparison[name]["value"] is not None
    }
    tags = {
        "promoted": promoted,
        "family": promotion.family,
        "reason": promotion.reason,
        "table_sha256": promotion.table_sha256,
        "app_version": promotion.app_version,
        "hosts": "; ".join(served.host_classes)[:MAX_HOSTS],
        "calibrated": str(promotion.calibrated).lower(),
        "cv_objective": f"{promotion.cv_objective:.5f}",
        **errors,
        "git_commit": git_commit,
    }
    return {name: value for name, value in tags.items() if value}


def rollback_tags(app: str | None, other: str, prefix: str) -> dict[str, str]:
    """Return the tags of a rollback, for the version that was left or for the one returned to.

    Parameters
    ----------
    app : str or None
        Application; None for all of a version.
    other : str
        The other version.
    prefix : {"rolled_back", "restored"}
        Of the names of the tags: ``PREFIX_app``, ``PREFIX_at``, ``PREFIX_by`` and the other
        version, ``rolled_back_to`` or ``restored_from``.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        user = str(os.getuid())
    return {
        f"{prefix}_app": app or "all",
        f"{prefix}_at": datetime.now(UTC).isoformat(timespec="seconds"),
        f"{prefix}_by": user,
        {"rolled_back": "rolled_back_to", "restored": "restored_from"}[prefix]: other,
    }
