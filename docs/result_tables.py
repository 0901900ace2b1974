"""Write the tables of README.md and of the pages from the files in ``published/``.

``python docs/result_tables.py`` rewrites what stands between ``<!-- table: NAME -->`` and
``<!-- end of table -->`` (``make docs`` does it); with ``--check`` it only compares. No number in
these tables is typed by hand.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Any

import headline_tables
import parallel_tables
import system_tables
from table_text import NONE, PROJECT, Rows, markdown, percent, results, with_interval
from voxcast.images.characteristics import CHARACTERISTICS

PAGES = (
    "README.md", "docs/results.md", "docs/histories.md", "docs/cluster.md", "docs/parallel.md",
    "docs/service.md", "docs/measuring.md", "docs/own-data.md", "docs/requests.md",
)  # fmt: skip
IMAGE_APPS = ("ants_segment", "ants_register", "tile_segment")
APPS = (*IMAGE_APPS, "dnn_train")
TARGETS = ("cpu_s", "runtime_s", "peak_rss_bytes")
MARKED = re.compile(
    r"(?P<begin><!-- table: (?P<name>\w+) -->\n).*?(?P<end><!-- end of table -->)", re.S
)
HARP_FULL_SCALE = "harp_full_scale"


def noise_by_app() -> dict[str, dict[str, Any]]:
    """Return what repeats of the recorded campaign `reference` say, by application."""
    return {row["app"]: row for row in results("history/reference.json")["noise"]}


def reference() -> str:
    """Return the recorded campaign `reference`: times, noise, two CPUs."""
    history, noise = results("history/reference.json"), noise_by_app()
    normalised = {row["app"]: row["cv_percent"] for row in history["speed_normalised"]["noise"]}
    two_cpus = {row["app"]: row["speedup"] for row in history["cpus"]}
    rows = []
    for app in APPS:
        cell = next(
            row for row in history["cells"]
            if (row["app"], row["scale"], row["cpus"]) == (app, "full_scale", 1)
        )  # fmt: skip
        cv = noise[app]["cv_percent"]
        speedup = two_cpus.get(app)
        rows.append([
            f"`{app}`",
            str(cell["runs"]),
            " · ".join(f"{cell[f'cpu_s_{name}']:.1f}" for name in ("min", "median", "max")) + " s",
            *(
                f"{interval['value']:.1f} % ({interval['low']:.1f} to {interval['high']:.1f})"
                for interval in (cv["cpu_s"], normalised[app]["cpu_s"])
            ),
            percent(cv["runtime_s"]["value"]),
            percent(cv["peak_rss_bytes"]["value"]),
            str(noise[app]["runs"] - noise[app]["cells"]),
            percent(noise[app]["error_percent"]["cpu_s"]),
            NONE if speedup is None
            else f"{speedup['value']:.2f}× ({speedup['low']:.2f} to {speedup['high']:.2f})",
        ])  # fmt: skip
    head = [
        "application", "runs", "CPU time: least · median · most", "CV of repeats: CPU time",
        "the same, speed-normalised", "wall time", "memory", "degrees of freedom",
        "noise floor as an error of CPU time", "speed-up by two CPUs",
    ]  # fmt: skip
    return markdown(head, rows)


def validated_families(leaderboard: str) -> list[dict[str, str]]:
    """Return the rows of a leaderboard: families with their errors by cross-validation."""
    with (PROJECT / "published" / leaderboard).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def title(family: str) -> str:
    """Return the name of a family; baselines are marked."""
    return f"`{family}`" + (" (baseline)" if family in ("median", "voxels", "law") else "")


def recorded() -> str:
    """Return the families learned from the recorded campaigns: errors of CPU time."""
    tested, noise = results("recorded/families.json"), noise_by_app()
    errors: dict[str, dict[str, float]] = {}
    for row in validated_families("recorded/leaderboard.csv"):
        errors.setdefault(row["family"], {})[row["app"]] = float(row["cv_cpu_s_mape"])
    complete = [family for family, by_app in errors.items() if len(by_app) == len(IMAGE_APPS)]
    rows = [
        [
            title(family),
            *(
                percent(value)
                for app in IMAGE_APPS
                for value in (errors[family][app], tested[app][family]["cpu_s"]["mape"])
            ),
        ]
        for family in sorted(complete, key=lambda name: sum(errors[name].values()))
        if all(family in tested[app] for app in IMAGE_APPS)
    ]
    of_header = [percent(tested[app]["header_only"]["cpu_s"]["mape"]) for app in IMAGE_APPS]
    floors = [percent(noise[app]["error_percent"]["cpu_s"]) for app in IMAGE_APPS]
    rows += [
        ["best on headers alone", *(cell for header in of_header for cell in (NONE, header))],
        ["*noise floor as an error*", *(cell for floor in floors for cell in (floor, NONE))],
    ]
    head = [f"`{app}`: {side}" for app in IMAGE_APPS for side in ("CV", "unseen")]
    return markdown(["model", *head], rows)


def methods() -> str:
    """Return errors of wall time on unseen subjects, by method."""
    noise, splits = noise_by_app(), results("studies/splits.json")
    labels = {
        "voxcast": "voxcast", "harp_MAE": "HARP corrected, MAE",
        "harp_WTM": "HARP corrected, WTM", HARP_FULL_SCALE: "its regressors on full scale alone",
        "harp_MAE_custom": "HARP by epochs, MAE", "harp_WTM_custom": "HARP by epochs, WTM",
        "voxels": "line in voxels", "constant": "constant",
    }  # fmt: skip
    predictors = {key for app in APPS for key in splits[app]["subject"]}
    names = [name for name in labels if name in predictors]
    rows = []
    for app in APPS:
        subject = splits[app]["subject"]
        cells = [
            with_interval(subject[name]["errors"]["runtime_s"]) if name == "voxcast"
            else percent(subject[name]["errors"]["runtime_s"]["mape"]) if name in subject else NONE
            for name in names
        ]  # fmt: skip
        rows.append([f"`{app}`", percent(noise[app]["error_percent"]["runtime_s"]), *cells])
    return markdown(["application", "noise floor", *(labels[name] for name in names)], rows)


def questions() -> str:
    """Return errors of CPU time where a question is of a kind that was not measured."""
    splits = results("studies/splits.json")
    kinds = {
        "subject": "unseen subject", "configuration": "unseen allocation",
        "scale": "scaled-down runs alone", "parameters": "unseen parameters",
        "host": "unseen machine",
    }  # fmt: skip
    rows = []
    for app in APPS:
        cells = [
            splits[app][kind].get("not_measurable")
            or with_interval(splits[app][kind]["voxcast"]["errors"]["cpu_s"])
            for kind in kinds
        ]
        cpu = splits[app]["subject"]["voxcast"]["errors"]["cpu_s"]
        usual = [NONE, NONE]
        if "normalised_mape" in cpu:
            low, high = cpu["normalised_mape_interval"]
            usual = [
                f"{cpu['normalised_mape']:.1f} % ({low:.1f} to {high:.1f})",
                f"{cpu['normalised_trimmed_mape']:.1f} %",
            ]
        rows.append([f"`{app}`", cells[0], *usual, *cells[1:]])
    unseen, *others = kinds.values()
    usual_speed = [
        "at the usual speed",
        "without the 5 % of subjects with largest errors",
    ]
    return markdown(["application", unseen, *usual_speed, *others], rows)


def second() -> str:
    """Return the second batch: errors, coverage, what is requested."""
    batch = results("studies/second_batch.json")
    rows = []
    for app in IMAGE_APPS:
        covered = batch[app]["coverage"]
        sharpness = batch[app]["sharpness"]["runtime_s"]
        rows.append([
            f"`{app}`",
            *(with_interval(batch[app]["errors"][target]) for target in TARGETS),
            *(
                "{covered} of {subjects} ({low:.0f} to {high:.0f} %)".format(
                    **covered[target],
                    low=100 * covered[target]["interval"][0],
                    high=100 * covered[target]["interval"][1],
                )
                for target in TARGETS
            ),
            f"{sharpness['asked_over_used']:.2f}",
            f"{sharpness['one_request_asked_over_used']:.2f}",
        ])  # fmt: skip
    head = [
        "application", "CPU time", "wall time", "memory", "subjects below the bound: CPU time",
        "wall time", "memory", "requested over used: bound by image",
        "one request for all, as safe",
    ]  # fmt: skip
    return markdown(head, rows)


def real() -> str:
    """Return the real heads: errors, coverage, answers that are calibrated."""
    rows = []
    for batch in ("heads", "real"):
        for app, scores in results(f"studies/{batch}.json").items():
            errors, answers = scores["errors"], scores["answers"]
            bound = scores["coverage"]["cpu_s"]
            low, high = (100 * end for end in bound["interval"])
            normalised = {
                "mape": errors["cpu_s"]["normalised_mape"],
                "mape_interval": errors["cpu_s"]["normalised_mape_interval"],
            }
            rows.append([
                f"`{batch}`: `{app}`",
                with_interval(errors["cpu_s"]),
                with_interval(normalised),
                *(with_interval(errors[target]) for target in TARGETS[1:]),
                f"{bound['covered']} of {bound['subjects']} ({low:.0f} to {high:.0f} %)",
                f"{answers['calibrated']} of {answers['runs']}",
                str(scores["local_runs"]),
            ])  # fmt: skip
    head = ["batch: application", "CPU time", "at the usual speed", "wall time", "memory",
            "heads below the bound of CPU time", "calibrated answers", "local runs"]  # fmt: skip
    return markdown(head, rows)


def ablation() -> str:
    """Return errors of CPU time by what a model is given."""
    study, noise = results("studies/ablation.json"), noise_by_app()
    kinds = {
        "constant": "nothing (constant)", "voxels": "voxel count (a line)", "header": "header",
        "header + untrained network": "header and network, from runs alone",
        "header + network": "header and pretrained network",
        "header + content": "header and contents",
        "all": "all of it", "without hardware": "all but the hardware",
        "without parameters": "all but the parameters",
    }  # fmt: skip
    rows = []
    for kind, title in kinds.items():
        cells = [
            with_interval(study[app][kind]["cpu_s"]) if kind in study[app] else NONE
            for app in APPS
        ]
        rows.append([title, *cells])
    floor = [percent(noise[app]["error_percent"]["cpu_s"]) for app in APPS]
    rows.append(["*noise floor as an error*", *floor])
    return markdown(["given", *(f"`{app}`" for app in APPS)], rows)


def devices() -> str:
    """Return CPU against GPU: whole runs, and phases of at least 0.5 s on the CPU."""
    rows = []
    for row in results("history/gpu.json")["cpu_against_gpu"]:
        (cpu_s, gpu_s), speedup, usd = row["seconds"], row["speedup"], row["usd_per_1000_runs"]
        if cpu_s < 0.5:
            continue
        part = f"phase {row['phase']}" if row["phase"] else "whole run"
        rows.append([
            f"`{row['app']}`: {part}", f"{cpu_s:.3g} s", f"{gpu_s:.3g} s",
            f"{speedup['value']:.2f} ({speedup['low']:.2f} to {speedup['high']:.2f})",
            str(row["pairs"]), f"{usd[0]:.2g} · {usd[1]:.2g}",
        ])  # fmt: skip
    head = ["application", "CPU", "GPU", "speed-up", "pairs", "USD per 1,000 runs: CPU · GPU"]
    return markdown(head, rows)


def per_image() -> str:
    """Return what requests cost over the cost of a clairvoyant, replayed."""
    study = results("studies/per_image.json")
    rows = []
    for app in APPS:
        for prices in ("reserved", "turnaround"):
            ways = study[app][prices]["ways"]
            low, high = ways["per_image"]["normalised_cost_interval"]
            rows.append([
                f"`{app}`, {prices}", f"{study[app]['sd_log']:.2f}",
                *(f"{ways[strategy]['normalised_cost']:.2f}"
                  for strategy in ("laboratory", "harp_doubling", "population")),
                f"{ways['per_image']['normalised_cost']:.2f} ({low:.2f} to {high:.2f})",
                percent(100 * study[app][prices]["excess_left"]),
            ])  # fmt: skip
    head = ["application, prices", "SD of log runtime", "laboratory's rule", "HARP, doubled",
            "optimal, one for all", "optimal by image", "excess that remains"]  # fmt: skip
    return markdown(head, rows)


def bench() -> str:
    """Return the bounds that the project sets itself."""
    bench = results("bench/bench.json")
    sampler, cells = bench["sampler"]["sampler"], bench["campaign"]["cells"]
    volume, bulk, requests = bench["volume"], bench["bulk"], bench["requests"]
    fit = results("bench/fit.json")
    measured = ("family_group", "family_tree", "growth_group", "growth_tree")
    cost = {name: percent(100 * sampler[name]["cost_of_a_core"]) for name in measured}
    off = {
        kind: max(abs(peak - 1) for name in (f"family_{kind}", f"growth_{kind}")
                  for peak in sampler[name]["peaks_over_kernel_peak"])
        for kind in ("group", "tree")
    }  # fmt: skip
    three = "; ".join(f"{cells[name]['first_s']:.1f} s" for name in
                      ("list", "resume", "summarise"))  # fmt: skip
    rows = [
        ["`voxcast --help`", f"{bench['help']['help_s']:.2f} s", f"{bench['help']['bound_s']} s"],
        ["reading a header", f"{volume['header_ms']:.1f} ms", NONE],
        ["characteristics of a 256³ head, over its load",
         f"{volume['characteristics_over_load']:.2f}",
         str(volume["bound_characteristics_over_load"])],
        ["sampling at 10 Hz, share of one core: own control group; process tree",
         f"{cost['family_group']}; {cost['family_tree']}", "0.5 %; 3 %"],
        ["the same while memory grows page by page to 1.2 GB",
         f"{cost['growth_group']}; {cost['growth_tree']}", "0.5 %; 3 %"],
        ["largest deviation of the measured peak from the kernel's: control group; process tree",
         f"{percent(100 * off['group'])}; {percent(100 * off['tree'])}", "3 %"],
        ["a campaign of 10,000 cells: list; resume; summarise", three,
         f"{bench['campaign']['bound_s']:.0f} s each"],
        ["cost of a cell among 10,000, over that among 1,000",
         f"{bench['campaign']['cost_per_cell_over_that_of_a_tenth']['first_s']:.1f}",
         str(bench["campaign"]["bound_cost_per_cell"])],
        ["`dvc repro` with nothing to do", f"{bench['repro']['repro_noop_s']:.1f} s",
         f"{bench['repro']['bound_s']} s"],
        ["one row in process: header, one family; volume, the ensemble of the demo",
         f"{bench['predict']['header_row_ms']:.0f} ms; "
         f"{bench['predict']['volume_row_ms']:.0f} ms", "10 ms; 40 ms"],
        ["rows a second in bulk, the slowest of four",
         f"{min(bulk['rows_a_second'].values()):,.0f}", f"{bulk['bound_rows_a_second']:,}"],
        ["the network on a resampled volume; over the load of a 1 mm head",
         f"{bulk['network_ms']:.1f} ms; {bulk['network_over_load']:.2f}",
         f"{bulk['bound_network_ms']} ms; {bulk['bound_network_over_load']}"],
        ["recommendations for 100,000 images: choice among 4 candidates; from features",
         f"{bench['recommend']['choice_s']:.1f} s; "
         f"{bench['recommend']['features_to_answer_s']:.1f} s",
         f"{bench['recommend']['bound_s']} s"],
        ["optimal request sequence of 1,000 points; with checkpoints, 300 points",
         f"{requests['without_checkpoints_ms']['1000']:.1f} ms; "
         f"{requests['mixed_checkpoints_ms']['300']:.1f} ms",
         f"{requests['bound_without_checkpoints_1000_ms']} ms; "
         f"{requests['bound_mixed_checkpoints_300_ms']} ms"],
        ["optimal request sequences for 100,000 images",
         f"{requests['images_100000_s']:.1f} s", f"{requests['bound_images_100000_s']} s"],
        [f"`voxcast learn`: {fit['rows']:,} rows, {fit['columns']} columns, over its time budget",
         f"{fit['over_budget']:.2f}", str(fit["bound_over_budget"])],
    ]  # fmt: skip
    return markdown(["what", "measured", "allowed"], rows)


def public_tables() -> str:
    """Return the errors of `voxcast learn` beside the best plain model, by kind of table."""
    rows: Rows = []
    for name, record in results("bench/tables.json")["kinds"].items():
        unseen = record["unseen"]
        best = unseen["plain"][unseen["best_plain"]]
        larger = record.get("larger")
        rows.append([
            name.replace("_", " "), f"{record['rows']} × {record['columns']}",
            *(f"{unseen['fit'][metric]:.1f} %" for metric in ("mape", "median_ape")),
            f"{best['mape']:.1f} %, {unseen['best_plain'].replace('_', ' ')}",
            f"{100 * unseen['covered']:.0f} % "
            f"({100 * unseen['interval'][0]:.0f} to {100 * unseen['interval'][1]:.0f})",
            NONE if larger is None else f"{larger['fit']['mape']:.0f} %",
            NONE if larger is None
            else f"{larger['plain'][larger['best_plain']]['mape']:.0f} %",
        ])  # fmt: skip
    head = ["kind", "rows × columns", "MAPE", "median", "best of seven plain, MAPE",
            "below the bound", "larger scales", "best plain"]  # fmt: skip
    return markdown(head, rows)


def characteristics() -> str:
    """Return the characteristics of images with their units and sources."""
    rows = [[f"`{c.name}`", c.meaning, c.unit, c.source] for c in CHARACTERISTICS.values()]
    return markdown(["characteristic", "meaning", "unit", "source"], rows)


TABLES = {
    make.__name__: make
    for make in (
        reference, recorded, methods, questions, second, real, ablation, per_image, bench, devices,
        public_tables, characteristics, *headline_tables.TABLES, *system_tables.TABLES,
        *parallel_tables.TABLES,
    )
}  # fmt: skip


def refreshed(text: str) -> str:
    """Return a page with every marked table made anew."""
    return MARKED.sub(lambda match: match["begin"] + _table(match["name"]) + match["end"], text)


def _table(name: str) -> str:
    """Return a table, or a line that names the file which was not computed yet."""
    try:
        return TABLES[name]()
    except FileNotFoundError as error:
        return f"Not computed yet: `{Path(error.filename).relative_to(PROJECT)}`.\n"


def main(argv: list[str]) -> int:
    """Rewrite the pages, or with ``--check`` say which are out of date."""
    stale = []
    for page in PAGES:
        path = PROJECT / page
        text = path.read_text(encoding="utf-8")
        if refreshed(text) == text:
            continue
        stale.append(page)
        if "--check" not in argv:
            path.write_text(refreshed(text), encoding="utf-8")
    if "--check" in argv and stale:
        print(f"out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
