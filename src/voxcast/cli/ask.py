"""Questions about images: ``voxcast predict``, ``recommend``, ``requests`` and ``inspect``.

The rows of a table can be predicted too. A sequence of requests is used until one suffices; each
is longer than the last.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from voxcast import project as projects
from voxcast.allocation.requests.strategies import (
    ALL,
    CHECKPOINTING,
    STRATEGIES,
    RequestSequence,
    Settings,
    alternatives,
)
from voxcast.api.sequences import law_of, source_kind
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, RequestError, one_line
from voxcast.files import atomic_path
from voxcast.quantities import counted, format_bytes, format_seconds, format_voxels
from voxcast.records import Configuration
from voxcast.serving.signature import QUANTILES
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from voxcast.api.question import Question
    from voxcast.models.table_model import TableModel

WIDTH = 100  # of lines of text
NAMED_ROWS = 10  # refused rows that are named in the log
PRINTED_REQUESTS = 5
TABLES = (".parquet", ".csv")
IMAGE_LIST = Path("data/images/images.tsv")

logger = logging.getLogger(__name__)


def predict(
    images: Annotated[list[Path], Argument(metavar="IMAGE...|TABLE", show_default=False)],
    app: options.App = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    parameters: options.Parameters = None,
    model: options.Model = None,
    machine: options.Machine = None,
    header_only: options.HeaderOnly = False,
    quantile: Annotated[
        float, Option("--quantile", metavar="P", help="Probability of the upper bounds.")
    ] = 0.95,
    explain: Annotated[
        bool, Option("--explain", help="Show what changed the runtime most, against a usual run.")
    ] = False,
    out: Annotated[
        Path | None,
        Option("--out", metavar="FILE", help="Write the predictions to a .parquet or .csv file."),
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Predict runtime and memory of an application on images, for each allocation.

    A table of requests, ``.parquet`` or ``.csv``, is predicted row by row; so are the rows of any
    table by a model of `voxcast learn TABLE`.
    """
    from voxcast.models.table_model import MODEL_FILE

    if model is not None and (Path(model) / MODEL_FILE).is_file():
        return _predict_any_table(images, Path(model), out, as_json=as_json)
    if not 0.5 < quantile < 1:
        raise ConfigError(f"must be between 0.5 and 1, not {quantile}", "--quantile")
    question = options.question(
        app, cpus, gpus, parameters, model, project, header_only=header_only, machine=machine
    )
    if any(path.suffix in TABLES for path in images):
        return _predict_rows(images, question, quantile, explain, out, as_json=as_json)
    if out is not None and out.suffix not in TABLES:
        raise ConfigError(
            "not the name of a table file", out, f"end it with {' or '.join(TABLES)}"
        )
    champion = question.champion(for_now=True)
    results: list[dict[str, Any]] = []
    for image in images:
        try:
            rows = champion.request_rows(image)
            predictions = champion.predict(rows, quantile, explain=explain)
            results.append({"image": str(image), "predictions": predictions})
        except (ImageError, RequestError) as error:  # the other images are still predicted
            name = f"{image}: " if isinstance(error, RequestError) else ""
            logger.error("%s%s", name, one_line(error))
    if out is not None and results:
        import pandas as pd

        named = [{"image": r["image"], **row} for r in results for row in r["predictions"]]
        _write_table(pd.DataFrame(named), out)
        logger.info(
            "%s: predictions of %s, %d rows", out, counted(len(results), "image"), len(named)
        )
    lines = (
        line
        for result in (results if out is None else ())
        for line in _prediction_lines(result["image"], result["predictions"], quantile)
    )
    options.show(results, lines, as_json=as_json)
    return 0 if len(results) == len(images) else EXIT_BAD_INPUT


def _write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table, as CSV unless the name says Parquet."""
    with atomic_path(path) as partial:
        if path.suffix == ".parquet":
            table.to_parquet(partial, index=False)
        else:
            table.to_csv(partial, index=False)


def _prediction_lines(
    image: str, predictions: list[dict[str, Any]], quantile: float
) -> Iterator[str]:
    """Yield the predictions of an image as a table, with remarks."""
    from voxcast.allocation.recommendation import caveats, input_lines, machine_line

    low, high = f"{100 * (1 - quantile):.3g} %", f"{100 * quantile:.3g} %"
    first = predictions[0]
    yield f"{os.path.basename(image)}: {first['app']}, model {first['family']}"  # noqa: PTH119
    if line := machine_line(first):
        yield f"  {line}"
    table: list[tuple[str, ...]] = [
        ("", f"runtime {low}", "50 %", high, f"memory {low}", "50 %", high)
    ]
    table += [
        (
            Configuration(row["device"], int(row["cpus"]), int(row["gpus"])).label,
            *(format_seconds(row[f"runtime_s_{q}"]) for q in QUANTILES),
            *(format_bytes(row[f"peak_rss_bytes_{q}"]) for q in QUANTILES),
        )
        for row in predictions
    ]
    yield text_table(table, "<>>>>>>", indent="  ")
    because = (reason["text"] for reason in json.loads(first.get("because") or "[]"))
    remarks = dict.fromkeys(c for row in predictions for c in caveats(row, quantile))
    yield from (f"  {line}" for line in (*because, *input_lines(first), *remarks))


def _predict_any_table(
    tables: list[Path], folder: Path, out: Path | None, *, as_json: bool
) -> int:
    """Predict the rows of one table with a model of `voxcast learn TABLE`."""
    from voxcast.features.any_table import read_csv
    from voxcast.models.table_model import SEPARATOR, TableModel

    if len(tables) != 1:
        raise ConfigError("needs exactly one table", "--model")
    model = TableModel.load(folder)
    predictions = model.predict(read_csv(tables[0], model.columns.read_as_text))
    if out is not None:
        _write_table(predictions, out)
        count, calibrated = counted(len(predictions), "row"), int(predictions["calibrated"].sum())
        logger.info("%s: %s predicted, %d with a calibrated bound", out, count, calibrated)
    lists = {
        column: predictions[column].map(lambda text: text.split(SEPARATOR) if text else [])
        for column in ("out_of_range", "reason")
    }
    content = predictions.assign(**lists)
    lines = _any_table_lines(content, model) if out is None else ()
    return options.show(content.to_dict("records"), lines, as_json=as_json)


def _any_table_lines(predictions: pd.DataFrame, model: TableModel) -> Iterator[str]:
    """Yield the predictions of rows, numbered from 1, and why bounds are not calibrated."""
    from voxcast.models.table_model import CUT_OFF, NEW_CONFIGURATION, OUT_OF_RANGE, SEPARATOR

    rows = [("row", "prediction", "upper", "calibrated", "out of range")]
    rows += [
        (str(number), f"{row.prediction:.4g}", f"{row.upper:.4g}",
         "yes" if row.calibrated else "no", SEPARATOR.join(names))
        for number, (row, names) in enumerate(
            zip(predictions.itertuples(index=False), predictions["out_of_range"], strict=True), 1
        )
    ]  # fmt: skip
    yield text_table(rows, ">>><<")
    evidence = model.evidence()
    texts = {
        OUT_OF_RANGE: "the trend of the table is continued; how far that holds is not known",
        NEW_CONFIGURATION: "the bound is about new runs of the configurations in the table",
        CUT_OFF: "the bound ends at ten times all that was measured, so it may be too low",
        evidence.reason: f"{evidence.text()}; for a calibrated one {evidence.advice()}",
    }
    reasons = set(predictions["reason"].explode().dropna())
    for reason in (name for name in texts if name in reasons):
        yield from textwrap.wrap(f"{reason}: {texts[reason]}", WIDTH, subsequent_indent="  ")


def _predict_rows(
    tables: Sequence[Path],
    question: Question,
    quantile: float,
    explain: bool,
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Predict the rows of one file; return the exit code, 2 if a row was refused."""
    options.refuse_if(
        (len(tables) != 1, "a table of rows is predicted by itself", "predict", "name it alone"),
        (out is None and not as_json, "is needed for a table", "--out",
         "or --json for a list on stdout"),
    )  # fmt: skip
    of_images = {
        "--cpus": question.cpus, "--gpus": question.gpus, "--header-only": question.header_only,
    }  # fmt: skip
    options.refuse(of_images, "is for images", "the rows of a table say it")
    import pyarrow as pa

    from voxcast.log import progress
    from voxcast.serving.table_files import ERROR, open_rows, written_rows

    source = open_rows(tables[0])
    batch_predictions = question.batches(source, quantile, explain=explain)
    schema, printed = batch_predictions.schema, list[dict[str, Any]]()
    number, refused = 0, 0
    with contextlib.ExitStack() as stack:
        writer = None if out is None else stack.enter_context(written_rows(out, schema))
        bar = stack.enter_context(progress(total=source.rows, desc="predicting", unit="row"))
        for rows in batch_predictions.batches():
            for row in rows:
                number += 1
                if row[ERROR] is not None:
                    refused += 1
                    if refused <= NAMED_ROWS:
                        logger.error("%s: row %d: %s", source.path, number, row[ERROR])
            if writer is None:
                printed += rows
            else:
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
            bar.update(len(rows))
    if refused:
        named = f", {NAMED_ROWS} of them above" if refused > NAMED_ROWS else ""
        logger.error("%s: %d of %d rows refused%s", source.path, refused, number, named)
    if out is None:
        print(json.dumps(printed, indent=2, default=str))
    else:
        logger.info("%s: predictions of %d rows", out, number - refused)
    return EXIT_BAD_INPUT if refused else 0


def recommend(
    images: Annotated[list[Path], Argument(metavar="IMAGE...", show_default=False)],
    app: options.App = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    parameters: options.Parameters = None,
    model: options.Model = None,
    cluster: options.Cluster = None,
    policy: options.Policy = None,
    deadline: options.Deadline = None,
    budget: options.Budget = None,
    changes: options.Set = None,
    form: Annotated[
        Literal["text", "sbatch", "args", "csv", "babs"],
        Option(
            "--as",
            metavar="text|sbatch|args|csv|babs",
            help="For one image sbatch: #SBATCH lines, or args: options for the command line of "
            "sbatch. For many csv: time and memory of three attempts, for workflow engines, or "
            "babs: cluster_resources of BABS.",
        ),
    ] = "text",
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="Write it to this file.")
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Recommend the cheapest request of each image that is safe, within deadline and budget.

    Every allocation is shown with its time, memory and cost; those that no other beats in both
    time and cost are marked.
    """
    from voxcast.allocation.recommendation_text import text_lines
    from voxcast.api.plan import Plan

    if form == "csv" and out is None:
        raise ConfigError("is needed for a table", "--out", "give --out FILE.csv")
    question = options.question(
        app, cpus, gpus, parameters, model, project, cluster=cluster, policy=policy,
        deadline=deadline, budget=budget, changes=changes,
    )  # fmt: skip
    recommendation = question.recommendation(
        images, with_slurm=form in ("sbatch", "args", "babs"), for_now=form == "text"
    )
    if recommendation is None:
        return EXIT_BAD_INPUT
    plan = Plan(question, images, recommendation)
    refused = list(recommendation.without_request())
    if form == "csv" and out is not None and not as_json:
        plan.to_csv(out)
        logger.info("%s: requests of %s", out, counted(len(images) - len(refused), "image"))
    else:
        printed = "text" if as_json else form
        lines: Iterable[str] = text_lines(recommendation)
        if printed == "sbatch":
            lines = [plan.sbatch().rstrip()]
        elif printed == "babs":
            lines = [plan.babs().rstrip()]
        elif printed == "args":
            lines = [plan.sbatch_args()]
            for caveat in recommendation.caveats(0):
                logger.warning("%s", caveat)
        options.show(recommendation.as_json(), lines, as_json=as_json, out=out)
    if form != "text" or as_json:  # which the text says itself
        for image, reason in refused:
            logger.error("%s: %s", image, reason)
    return 0 if plan.is_complete else EXIT_BAD_INPUT


def requests(
    source: Annotated[
        str,
        Argument(
            metavar="LAW|HISTORY|IMAGE",
            help="a law such as 'lognormal(3,0.5)'; a folder or CSV table of runs; or an image, "
            "whose runtime the model predicts",
            show_default=False,
        ),
    ],
    app: options.App = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    parameters: options.Parameters = None,
    model: options.Model = None,
    strategy: Annotated[
        str,
        Option("--strategy", metavar="NAME", help="One strategy, or all; `list` explains them."),
    ] = "all",
    cost: options.Cost = options.PLAIN_COST,
    checkpoint: options.Checkpoint = None,
    where: options.Where = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Compute sequences of requests, each longer than the last, and their expected cost.

    A request of length W with u of it used costs A W + B u + C. The predicted law of an image is
    for the longest run of a subject, and slightly wider than for a single run.
    """
    if "list" in (strategy, source):
        for name, listed in STRATEGIES.items():
            print(f"{name}: {listed.meaning}" + " (needs --checkpoint)" * listed.checkpoints)
        return 0
    kind, cost_model = source_kind(source), options.cost_model(cost, checkpoint)
    if kind != "history":
        options.refuse({"--where": where}, "is for a history")
    if kind == "law":
        options.refuse({"--app": app}, "is for a history or an image")
    if kind != "image":
        of_image = {"--param": parameters, "--model": model, "--cpus": cpus, "--gpus": gpus}
        options.refuse(of_image, "is for an image")
    question = options.question(app, cpus, gpus, parameters, model, project)
    law, warnings = law_of(source, question, where or ())
    format_length = "{:.5g}".format if kind == "law" else format_seconds
    can_checkpoint = checkpoint is not None
    sequences, refused = alternatives(
        strategy, law, cost_model, Settings(format_length=format_length),
        can_checkpoint=can_checkpoint,
    )  # fmt: skip
    for reason in refused:
        logger.warning("skipped: %s", reason)
    if strategy == ALL and not can_checkpoint:
        then = "skipped, for jobs that can write a checkpoint; they need --checkpoint: %s"
        logger.info(then, ", ".join(CHECKPOINTING))
    content = [sequence.as_json(warnings) for sequence in sequences]
    lines = (
        *_sequence_lines(sequences, format_length), *(f"  {warning}" for warning in warnings)
    )  # fmt: skip
    return options.show(content, lines, as_json=as_json)


def _sequence_lines(
    computed: Iterable[RequestSequence], format_length: Callable[[float], str]
) -> Iterator[str]:
    sequences = sorted(computed, key=lambda sequence: sequence.expected_cost)
    rows = [("strategy", "normalised", "cost", "requests (* ends with a checkpoint)")]
    for sequence in sequences:
        count = len(sequence.lengths)
        flags = sequence.checkpoints or (False,) * count
        requests = [
            format_length(length) + "*" * flag
            for length, flag in zip(sequence.lengths[:PRINTED_REQUESTS], flags, strict=False)
        ] + [f"… ({count} in all)"] * (count > PRINTED_REQUESTS)
        normalised, cost = f"{sequence.normalised_cost:.4f}", f"{sequence.expected_cost:.5g}"
        rows.append((sequence.strategy, normalised, cost, ", ".join(requests)))
    yield text_table(rows, "<>><")
    yield "  normalised: the cost over that of knowing the runtime beforehand; 1 is the least"
    if len(sequences) == 1:
        return
    cheapest = sequences[0]
    equal = [s.strategy for s in sequences[1:] if s.lengths == cheapest.lengths]
    same = f" ({', '.join(equal)} {'is' if len(equal) == 1 else 'are'} the same)" if equal else ""
    first, *others = (format_length(length) for length in cheapest.lengths)
    then = f", {others[0]} if that was too short" if others else ""
    use = f"request {first}{then}" + ", and so on" * (len(others) > 1)
    yield f"  take the cheapest, {cheapest.strategy}{same}: {use}"
    yield "  what the names mean: `voxcast requests list`"


def inspect(
    images: options.Images = None,
    header_only: options.HeaderOnly = False,
    refresh: Annotated[bool, Option("--refresh", hidden=True)] = False,  # `make repro`
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show the header and the characteristics of images; without one, the project's image set."""
    from voxcast.images.header import log_itk_refusals
    from voxcast.images.sources import read_tsv, refresh_sources
    from voxcast.images.summary import Grids, summarise
    from voxcast.images.volume import POINTS, Volume

    if refresh:
        from voxcast import config

        folder = projects.require(project)
        chosen = config.load(folder / config.PARAMS_FILE).images
        if changes := refresh_sources(folder, chosen.path, chosen.participants):
            print(changes, file=sys.stderr)
        return 0
    if not images:
        path = projects.require(project) / IMAGE_LIST
        files = read_tsv(path) if path.is_file() else []
        print(f"{len(files)} images", file=sys.stderr)
        listed = [
            (f.subject, f.session, f.suffix, f.path, f"({f.problem})" * bool(f.problem))
            for f in files
        ]
        lines = [text_table(listed, "<<<<<")] if files else []
        return options.show([asdict(file) for file in files], lines, as_json=as_json)
    rows = []
    for path in images:
        try:
            volume = Volume.open(path)
            columns: dict[str, object] = {"path": str(path), **volume.header.columns()}
            if not header_only:
                columns |= summarise(volume, Grids(POINTS)).characteristics
        except ImageError as error:  # the other images are still shown
            logger.error("%s", one_line(error))
            continue
        log_itk_refusals([(path, volume.itk_refusal)])
        rows.append(columns)
    blocks = [
        "".join(f"{name:28} {_amount(name, value)}\n" for name, value in columns.items())
        for columns in rows
    ]
    if rows:
        options.show(rows, blocks, as_json=as_json)
    return 0 if len(rows) == len(images) else EXIT_BAD_INPUT


def _amount(name: str, value: object) -> str:
    from voxcast.images.characteristics import CHARACTERISTICS

    if not isinstance(value, float):
        return str(value)
    if name.endswith("_voxels"):
        return format_voxels(value)
    entry = CHARACTERISTICS.get(name)
    return f"{value:.4g} {entry.unit if entry else ''}".rstrip()
