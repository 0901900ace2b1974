"""What a service tells of itself: its health, its model, the sites and the history of its project.

``GET /health``, ``/models``, ``/sites`` and ``/history``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from voxcast.errors import ConfigError, ModelError, TableError, VoxcastError, one_line
from voxcast.web.guards import OPTIONS, json_answer, served_model, service_router, settings_of

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.config import Site
    from voxcast.serving.bundle import ServedApp
    from voxcast.serving.model_store import ModelStore
    from voxcast.serving.prediction_service import PredictionService
    from voxcast.web.model_switch import ModelSwitch

CONF, SUBMIT = "conf", "submit.yaml"
MAX_RUNS = 5000
SOURCES = ("data/history", "data/runs")
EVALUATED = Path("results/evaluate/predictions.csv")
# One computation at a time, so that threads of predictions are never taken by those who wait.
_THREAD = ThreadPoolExecutor(1, "history")

router = service_router()
open_router = APIRouter()  # of routes that need neither a token nor a model


@open_router.get("/health", response_class=Response)
async def health(request: Request) -> Response:
    """Tell the version that answers, and whether the registry could be read last time.

    503 before a model is loaded. ``refused`` is a champion that cannot be served. The log has the
    reasons.
    """
    switch: ModelSwitch = request.app.state.switch
    content = {
        "ready": switch.champion is not None,
        "model_version": None if switch.champion is None else switch.champion.version,
        "switches": switch.switches,
        "refused": sorted(switch.refused),
        "registry": not switch.problem,
    }
    if switch.champion is None:
        return json_answer(content, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "1"})
    return json_answer(content)


@open_router.get("/ping", include_in_schema=False)
async def ping() -> Response:
    """Tell that the server answers, in MLflow's protocol."""
    return Response("\n")


@router.get("/models", response_model=dict[str, Any])
async def models(request: Request) -> Response:
    """Return the applications of the model, their training data, and all versions.

    ``refused`` is a champion that cannot be loaded, with the reason.
    """
    served, state = served_model(request), request.app.state
    return json_answer(
        {
            "name": "voxcast",
            "version": served.version,
            "apps": {name: _app(served, name) for name in sorted(served.bundle.apps)},
            "refused": dict(state.switch.refused),
            "versions": await asyncio.to_thread(_versions, state.settings.store),
        }
    )


def _app(served: PredictionService, name: str) -> dict[str, Any]:
    """Return the facts of an application as a form or a page needs them."""
    app = served.bundle.apps[name]
    facts, promotion = app.to_json(), app.promotion
    for hidden in ("forecaster_sha256", "trained_on_sha256", "promotion"):
        del facts[hidden]
    model = served.forecaster(name).model_at("volume").model
    return {
        **facts,
        "network_points": served.network_points(app),
        **promotion.summary(),
        "app_version": promotion.app_version,
        "calibrated_at": promotion.promoted_at,
        "detail": promotion.detail,
        "law": promotion.evidence.get("law", {}),
        "ranges": dict(model.range.numbers),
    }


def _versions(store: ModelStore) -> list[dict[str, Any]]:
    """Return the versions as ``voxcast models --json`` does; none if they cannot be read now."""
    try:
        return store.listed()
    except ModelError:
        return []


async def site_of(request: Request, cluster: str | None, policy: str | None) -> Site:
    """Return a cluster and a policy as their files are now; see `voxcast.config.current_site`."""
    return await asyncio.to_thread(_site, _conf_dir(request), cluster, policy)


def _site(conf_dir: Path, cluster: str | None = None, policy: str | None = None) -> Site:
    from voxcast import config  # takes half a second, which the start of a service has not

    return config.current_site(conf_dir, cluster, policy)


def _conf_dir(request: Request) -> Path:
    """Return ``conf`` of the project, or of the installation where it describes no site."""
    project = settings_of(request).project
    if project is None or not (project / CONF / SUBMIT).is_file():
        from voxcast.config.project_files import packaged_folder

        project = packaged_folder()
    return project / CONF


@router.get("/sites", summary="Clusters and policies")
async def sites(request: Request) -> dict[str, Any]:
    """List the clusters and policies of the project, with the prices and limits they have now.

    One whose file cannot be used has the reason as ``problem``.
    """
    return await asyncio.to_thread(_sites, _conf_dir(request))


def _sites(conf_dir: Path) -> dict[str, Any]:
    from voxcast import config

    default = _facts(None, lambda _: _default_names(_site(conf_dir)))
    return {
        "clusters": [
            _facts(name, lambda name: _cluster(_site(conf_dir, cluster=name)))
            for name in config.options(conf_dir / "cluster")
        ],
        "policies": [
            _facts(name, lambda name: _policy(_site(conf_dir, policy=name)))
            for name in config.options(conf_dir / "policy")
        ],
        "default_cluster": default.get("cluster"),
        "default_policy": default.get("policy"),
    }


def _facts(name: str | None, read: Callable[[str | None], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {**read(name), "problem": None}
    except ConfigError as error:  # the files that can be used are still listed
        return {"name": name, "problem": one_line(error)}


def _default_names(site: Site) -> dict[str, Any]:
    return {"cluster": site.cluster.name, "policy": site.policy.name}


def _cluster(site: Site) -> dict[str, Any]:
    cluster = site.cluster
    partitions = [
        {**asdict(partition), "wait_of_1_h_s": float(partition.waiting.of(3600.0))}
        for partition in cluster.partitions
    ]
    return {
        "name": cluster.name,
        "this_machine": cluster.is_this_machine,
        "free": cluster.free,
        "partitions": partitions,
        "node_types": [asdict(node) for node in cluster.node_types],
    }


def _policy(site: Site) -> dict[str, Any]:
    return {**asdict(site.policy), "risk": site.policy.risk}


@router.get(
    "/history", summary="Runs on record, and how predictions held",
    response_model=dict[str, Any],
)  # fmt: skip
async def history(request: Request) -> Response:
    """Compare what runs requested, used and were predicted to use.

    ``runs`` are the newest 5,000, ``calibration`` is the share of subjects of a month below their
    bound. It is computed again when the history has changed.
    """
    settings, served = settings_of(request), served_model(request)
    if settings.project is None:
        raise HTTPException(404, "the service was started without a project, which has the runs")
    loop, cache = asyncio.get_running_loop(), request.app.state.history
    content = await loop.run_in_executor(_THREAD, _history, settings.project, served, cache)
    return Response(content, media_type="application/json")


def _history(project: Path, served: PredictionService, cache: dict[str, bytes]) -> bytes:
    """Return the answer, from the cache if nothing has changed; for one thread at a time."""
    from voxcast.analysis.job_drift import monthly_coverage
    from voxcast.analysis.runs_on_record import run_outlines

    state = _state(project, served.version)
    if state not in cache:
        runs = _runs(project)
        evaluated = _evaluated(project, served.bundle.apps)
        content = {
            "runs_on_record": len(runs),
            "runs": run_outlines(runs.tail(MAX_RUNS), evaluated).to_dict("records"),
            "calibration": monthly_coverage(runs, evaluated).to_dict("records"),
        }
        cache.clear()
        cache[state] = orjson.dumps(content, option=OPTIONS)
    return cache[state]


def _state(project: Path, champion: str) -> str:
    """Return a name of the state of all files that the history is read from."""
    from voxcast.runs.series import RUNS

    files = {project / EVALUATED}
    for source in SOURCES:
        files |= {*(project / source).glob(f"*/{RUNS}"), *(project / source).glob(f"*/*/{RUNS}")}
    statuses = {str(path): path.stat() for path in files if path.exists()}
    stamps = sorted((name, s.st_mtime_ns, s.st_size) for name, s in statuses.items())
    return sha256(repr((champion, stamps)).encode()).hexdigest()


def _runs(project: Path) -> pd.DataFrame:
    """Return all runs on record; none where there are none yet."""
    import pandas as pd

    from voxcast.runs.store import open_history
    from voxcast.runs.table import frame_of, in_schema

    frames = [frame_of([])]
    for source in SOURCES:
        try:
            frames.append(in_schema(open_history(project / source).runs))
        except TableError:  # missing, or still without a run
            continue
    filled = [frame for frame in frames if len(frame)] or frames
    runs = pd.concat(filled).drop_duplicates("cell_key")
    return runs.sort_values(["started_at", "cell_key"], ignore_index=True)


def _evaluated(project: Path, apps: Mapping[str, ServedApp]) -> pd.DataFrame | None:
    """Return the predictions of the last evaluation, by the families that are champions."""
    import pandas as pd

    try:
        predictions = pd.read_csv(project / EVALUATED)
        family = {name: app.promotion.family for name, app in apps.items()}
        stated = {name: app.promotion.upper_quantile for name, app in apps.items()}
        winners = predictions[predictions["family"] == predictions["app"].map(family)]
        return winners.assign(stated=winners["app"].map(stated))
    except (OSError, ValueError, KeyError, VoxcastError):  # of another release, or none yet
        return None
