"""Write the tables of README.md and of the pages from the files in ``results/``.

``python docs/result_tables.py`` rewrites what stands between ``<!-- table: NAME -->`` and
``<!-- end of table -->`` (``make docs`` does it); with ``--check`` it only compares. No number in
these tables is typed by hand.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md", "docs/results.md", "docs/scale.md", "docs/tables.md", "docs/worth.md",
    "docs/parcel-study.md", "docs/cluster-plan.md",
)  # fmt: skip
IMAGE_APPS = ("ants_segment", "ants_register", "tile_segment")
APPS = (*IMAGE_APPS, "dnn_train")
TARGETS = ("cpu_s", "runtime_s", "peak_rss_bytes")
MARKED = re.compile(
    r"(?P<begin><!-- table: (?P<name>\w+) -->\n).*?(?P<end><!-- end of table -->)", re.S
)
NONE = "–"
HARP_FULL_SCALE = "harp_full_scale"

Rows = list[list[str]]


def results(path: str) -> Any:
    """Return the content of a JSON file under ``results/``."""
    return json.loads((PROJECT / "results" / path).read_text(encoding="utf-8"))


def percent(value: float) -> str:
    """Write a percentage with two digits."""
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def with_interval(errors: dict[str, Any]) -> str:
    """Write a mean absolute percentage error with its 95 % interval over subjects."""
    if errors["mape_interval"] is None:  # of one subject
        return percent(errors["mape"])
    low, high = errors["mape_interval"]
    return f"{percent(errors['mape'])} ({max(low, 0):.1f} to {high:.1f})"


def markdown(head: list[str], rows: Rows) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def noise_by_app(batch: str = "reference") -> dict[str, dict[str, Any]]:
    """Return what repeats of a recorded campaign say, by application."""
    return {row["app"]: row for row in results(f"history/{batch}.json")["noise"]}


def headline() -> str:
    """Return the table of the README: one row an application, and where each column is from."""
    noise, splits = noise_by_app(), results("studies/splits.json")
    second, costs = results("studies/second_batch.json"), results("studies/per_image.json")
    rows, full_scale = [], False
    for app in APPS:
        methods = splits[app]["subject"]
        full_scale |= HARP_FULL_SCALE in methods
        harp = [
            percent(methods[name]["errors"]["runtime_s"]["mape"])
            for name in ("harp_MAE", HARP_FULL_SCALE)
            if name in methods
        ]
        requests = costs[app]["reserved"]["ways"]
        batch = second.get(app, {}).get("coverage", {}).get("runtime_s")
        rows.append([
            f"`{app}`",
            percent(noise[app]["error_percent"]["runtime_s"]),
            f"**{with_interval(methods['voxcast']['errors']['runtime_s'])}**",
            percent(methods["voxels"]["errors"]["runtime_s"]["mape"])
            if "voxels" in methods else "no image",
            "; ".join(harp),
            f"{batch['covered']} of {batch['subjects']}" if batch else "not in it",
            f"{requests['per_image']['normalised_cost']:.2f} against "
            f"{requests['population']['normalised_cost']:.2f}",
        ])  # fmt: skip
    rows.append([
        "*from `results`*",
        "`history/reference.json`",
        *["`studies/splits.json`"] * 3,
        "`studies/second_batch.json`",
        "`studies/per_image.json`",
    ])  # fmt: skip
    head = [
        "application", "repeats alone", "voxcast", "line in voxels",
        "HARP, corrected" + ("; on full scale alone" if full_scale else ""),
        "subjects below the 95 % bound", "cost of requests: by image, one for all",
    ]  # fmt: skip
    return markdown(head, rows)


def reference() -> str:
    """Return the recorded campaign `reference`."""
    return recorded_campaign("reference")


def reference2() -> str:
    """Return the recorded campaign `reference2`."""
    return recorded_campaign("reference2")


def recorded_campaign(batch: str) -> str:
    """Return a recorded campaign: times, noise, two CPUs."""
    history = results(f"history/{batch}.json")
    noise = noise_by_app(batch)
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
    with (PROJECT / "results" / leaderboard).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def title(family: str) -> str:
    """Return the name of a family; baselines are marked."""
    return f"`{family}`" + (" (baseline)" if family in ("voxels", "median") else "")


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


def demo() -> str:
    """Return the families of the committed run of `make demo`."""
    (tested,) = results("evaluate/families.json").values()
    rows = [
        [
            title(row["family"]),
            *(percent(float(row[f"cv_{target}_mape"])) for target in TARGETS),
            *(percent(tested[row["family"]][target]["mape"]) for target in TARGETS),
        ]
        for row in validated_families("tune/leaderboard.csv")
        if row["family"] in tested
    ]
    of_header = [percent(tested["header_only"][target]["mape"]) for target in TARGETS]
    rows.append(["best on headers alone", *[NONE] * 3, *of_header])
    head = ["model", "CV: CPU time", "wall time", "memory",
            "unseen: CPU time", "wall time", "memory"]  # fmt: skip
    return markdown(head, rows)


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


def excess() -> str:
    """Return what HARP requests in excess, and voxcast at no higher rate of requests too short."""
    splits = results("studies/splits.json")
    rows = []
    for app in APPS:
        for name, title in (
            ("harp_MAE", "MAE"), ("harp_WTM", "WTM"),
            ("harp_MAE_custom", "MAE, by epochs"), ("harp_WTM_custom", "WTM, by epochs"),
        ):  # fmt: skip
            rival = splits[app]["subject"].get(name)
            if rival is None:
                continue
            matched = rival["voxcast_at_no_more_risk"]
            rows.append([
                f"`{app}`: {title}", percent(rival["request"]["upp"]),
                percent(rival["request"]["ov_mape"]), percent(matched["upp"]),
                percent(matched["ov_mape"]),
            ])  # fmt: skip
    head = ["application: policy of HARP", "HARP: UPP", "OV_MAPE", "voxcast: UPP", "OV_MAPE"]
    return markdown(head, rows)


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


def domain() -> str:
    """Return which real heads lie within the range of a cohort."""
    rows = []
    for cohort, comparison in results("studies/domain.json").items():
        misses = [miss for missed in comparison["misses"].values() for miss in missed]
        names = sorted({f"`{miss['characteristic']}`" for miss in misses})
        rows.append([
            f"`{cohort}`", str(comparison["volumes"]),
            f"{comparison['heads_inside']} of {len(comparison['heads'])}",
            f"{len(misses)}, of {', '.join(names)}" if misses else NONE,
        ])  # fmt: skip
    head = ["cohort", "volumes", "heads within all ranges", "values outside"]
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


def family_pairs() -> str:
    """Return the families on the same unseen subjects, and their distance from the best."""
    rows = []
    for app, by_target in results("studies/families.json").items():
        for name, scores in by_target["cpu_s"]["families"].items():
            difference = scores["difference"]
            rows.append([
                f"`{app}`: " + ("chosen by inner folds" if name == "chosen" else f"`{name}`"),
                with_interval(scores["errors"]),
                percent(scores["errors"]["normalised_mape"]),
                "best" if difference is None
                else "{:+.1f} ({:+.1f} to {:+.1f})".format(
                    difference["points"], *difference["interval"]
                ),
            ])  # fmt: skip
    head = ["application: family", "CPU time", "speed-normalised", "points above the best"]
    return markdown(head, rows)


def curves() -> str:
    """Return the error of CPU time by number of subjects, and the floors."""
    study = results("studies/curves.json")
    counts = sorted({round(p["subjects"]) for curve in study.values() for p in curve["points"]})
    rows = []
    for app, curve in study.items():
        errors = {round(p["subjects"]): p["errors"]["cpu_s"] for p in curve["points"]}
        kinds = (("raw", "mape", "raw"), ("speed-normalised", "normalised_mape", "normalised"))
        for title, key, floor in kinds:
            cells = [percent(errors[n][key]) if n in errors else NONE for n in counts]
            rows.append([f"`{app}`, {title}", *cells, percent(curve["floors"][floor]["cpu_s"])])
    return markdown(["application", *(f"{n} subjects" for n in counts), "noise floor"], rows)


def machines() -> str:
    """Return errors and coverage on machines and sittings that were left out."""
    rows = []
    for app, by_kind in results("studies/machines.json").items():
        for kind, by_place in by_kind.items():
            if "not_measurable" in by_place:
                rows.append([f"`{app}`: {kind}", by_place["not_measurable"], *[NONE] * 3])
                continue
            for place, points in by_place.items():
                if "not_measurable" in points:
                    rows.append([f"`{app}`: {place}", points["not_measurable"], *[NONE] * 3])
                    continue
                for point in points:
                    cpu, covered = point["errors"]["cpu_s"], point["coverage"]["cpu_s"]
                    low, high = (100 * end for end in covered["interval"])
                    rows.append([
                        f"`{app}`: {place}", str(point["local_runs"]), with_interval(cpu),
                        percent(cpu["normalised_mape"]),
                        f"{percent(100 * covered['rate'])} ({low:.0f} to {high:.0f})",
                    ])  # fmt: skip
    head = ["left out", "local runs", "CPU time", "speed-normalised", "subjects below the bound"]
    return markdown(head, rows)


def registered_model() -> str:
    """Return the registered model judged on reserved batches."""
    rows = []
    for path in sorted((PROJECT / "results/judged").iterdir()):
        batch = results(f"judged/{path.name}")
        for app, scores in batch["apps"].items():
            if "not_measurable" in scores:
                continue
            answers, covered = scores["answers"], scores["coverage"]["cpu_s"]
            rows.append([
                f"{batch['batch']}: `{app}`", f"`{scores['family']}`, version {batch['version']}",
                *(with_interval(scores["errors"][target]) for target in TARGETS),
                f"{covered['covered']} of {covered['subjects']}",
                "{out_of_range} · {calibrated} of {runs}".format(**answers),
                str(batch["openings"]["any_subject"]),
            ])  # fmt: skip
    head = [
        "batch: application", "model", "CPU time", "wall time", "memory",
        "subjects below the bound of CPU time", "out of range · calibrated", "openings",
    ]  # fmt: skip
    return markdown(head, rows)


def scales() -> str:
    """Return what a tenth of the cost buys, spent in three ways."""
    study = results("studies/scales.json")
    rows = []
    for app in APPS:
        all_mape = study[app]["all"]["cpu_s"]["mape"]
        ratios = [
            f"{study[app][training]['cpu_s']['mape'] / all_mape:.1f}× for "
            f"{percent(100 * study[app][training]['cost_share'])}"
            for training in ("mixed", "full_only", "chosen")
        ]
        rows.append([f"`{app}`", percent(all_mape), *ratios])
    head = ["application", "error after all of it", "random runs, half of the cost scaled down",
            "random runs at full scale", "full scale, chosen by `--next`"]  # fmt: skip
    return markdown(head, rows)


def transfer() -> str:
    """Return the median error after a few runs of another network."""
    study = results("studies/transfer.json")
    rows = []
    for pair, curve in study.items():
        first = curve[0]
        names = " → ".join(f"`{name}`" for name in pair.split(" -> "))
        errors = (percent(first[name]) for name in ("cold", "transferred", "pooled"))
        rows.append([names, str(first["runs"]), *errors])
    head = ["from → to", "runs of the other", "those alone", "corrected by one factor",
            "one model of both"]  # fmt: skip
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
    ]  # fmt: skip
    return markdown(["what", "measured", "allowed"], rows)


def metronome() -> str:
    """Return what kernels beside repeats of one run leave of the scatter of its CPU time."""
    gauges = {
        "nothing known": "nothing", "own start": "own start", "`compute`": "compute, same core",
        "`copy`": "copy, same core", "`gather`": "gather, same core",
        "`interpreter`": "interpreter, same core", "their mean": "mean of all four, same core",
        "all four": "all four, same core", "`gather` on the other core": "gather, other core",
        "all four on the other core": "all four, other core",
    }  # fmt: skip
    rows = []
    for number, sitting in enumerate(results("bench/metronome.json")["sittings"], 1):
        left_over, cost = sitting["left_over"], sitting["cost"]
        rows.append([
            str(number),
            *(
                f"{left_over[name]['percent']:.1f} % ({left_over[name]['low']:.1f} to "
                f"{left_over[name]['high']:.1f})" if name in left_over else NONE
                for name in gauges.values()
            ),
            NONE if cost is None else percent(100 * cost["share_of_a_core"]),
            NONE if cost is None else f"{cost['work_slower_percent']:.1f} % ({cost['low']:.1f} to "
            f"{cost['high']:.1f})",
        ])  # fmt: skip
    return markdown(["sitting", *gauges, "its share of a core", "other work slower by"], rows)


def public_tables() -> str:
    """Return the errors of `voxcast fit` beside the best plain model, by kind of table."""
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


def scale_bounds() -> str:
    """Return the bounds of work on a cluster."""
    pool, submission = results("bench/pool.json"), results("bench/submission.json")
    audit = results("bench/audit.json")
    jobs, lines = submission["growth"][-1], audit["growth"][-1]
    claim = max(pool["claims"], key=lambda row: (row["cells"], row["workers"]))
    cell = pool["one_cell"]
    rows = [
        [f"planning and rendering {jobs['jobs']:,} jobs",
         f"{jobs['plan_s'] + jobs['render_s']:.1f} s",
         f"{submission['bound_render_s']:.0f} s"],
        [f"`submit` of that plan in {jobs['arrays']} arrays, with Slurm's `sbatch`; CPU time",
         f"{jobs['submit']['wall_s']:.1f} s; {jobs['submit']['cpu_s']:.1f} s", NONE],
        [f"status of {jobs['jobs']:,} jobs from one call of `sacct`; CPU time; `sacct` alone",
         f"{jobs['status']['wall_s']:.1f} s; {jobs['status']['cpu_s']:.1f} s; "
         f"{jobs['sacct_alone_s']:.1f} s", f"{submission['bound_status_s']:.0f} s"],
        [f"audit of {lines['lines']:,} lines; CPU time; memory at most",
         f"{lines['wall_s']:.0f} s; {lines['cpu_s']:.1f} s; {lines['peak_bytes'] / 1e9:.2f} GB",
         f"{audit['bound_s']:.0f} s; {audit['bound_bytes'] / 1e9:.1f} GB"],
        [f"a claim, {claim['workers']} workers on {claim['cells']:,} cells: median; 95 %",
         f"{claim['claim_ms']:.2f} ms; {claim['claim_95_ms']:.1f} ms",
         f"{pool['bound_claim_ms']:.0f} ms"],
        ["the pool's time for a cell: claim, record, sync, commit",
         f"{cell['pool_ms']:.0f} ms "
         f"({cell['pool_ms_least_most'][0]:.0f} to {cell['pool_ms_least_most'][1]:.0f})",
         f"{pool['bound_cell_ms']:.0f} ms"],
        ["measuring beside the run, as without a pool; with a metronome",
         f"{cell['measuring_ms']:.0f} ms; {cell['measuring_with_metronome_ms']:.0f} ms", NONE],
        ["all that a cell takes beside its run; CPU time of the worker for it",
         f"{cell['beside_run_ms']:.0f} ms; {cell['cpu_ms']:.0f} ms", NONE],
    ]  # fmt: skip
    return markdown(["what", "measured", "allowed"], rows)


def scale_machine() -> str:
    """Return when and on what the figures of scale were measured."""
    rows = []
    for name in ("pool", "submission", "audit"):
        of = results(f"bench/{name}.json")["machine"]
        rows.append([
            f"`results/bench/{name}.json`", of["measured_at"][:16].replace("T", " "),
            str(of["cores"]), f"{of['load_1_min']:.1f}", of["disk"],
        ])  # fmt: skip
    return markdown(["file", "measured (UTC)", "cores", "load before", "disk"], rows)


def scale_claims() -> str:
    """Return the growth of claims with cells and workers."""
    claims = results("bench/pool.json")["claims"]
    rows = [
        [f"{row['cells']:,}", str(row["workers"]), str(row["claims"]),
         *(f"{row[name]:.2f} ms" for name in
           ("claim_ms", "claim_95_ms", "rename_ms", "rename_95_ms"))]
        for row in claims
    ]  # fmt: skip
    head = ["cells", "workers", "claims", "median", "95 %", "a plain rename beside it", "95 %"]
    return markdown(head, rows)


def scale_growth() -> str:
    """Return the growth with cells of the pool, with jobs, and with lines of accounting."""
    pool, jobs = results("bench/pool.json")["growth"], results("bench/submission.json")["growth"]
    audits, rows = results("bench/audit.json")["growth"], []
    sources: tuple[tuple[str, list[dict[str, Any]], str, Any], ...] = (
        ("making a pool, CPU", pool, "cells", lambda row: row["made_cpu_s"]),
        ("a worker's first look, CPU", pool, "cells", lambda row: row["look_cpu_s"]),
        ("its look again, CPU", pool, "cells", lambda row: row["look_again_cpu_s"]),
        ("`submit`, CPU", jobs, "jobs", lambda row: row["submit"]["cpu_s"]),
        ("`status`, CPU", jobs, "jobs", lambda row: row["status"]["cpu_s"]),
        ("`sacct` alone", jobs, "jobs", lambda row: row["sacct_alone_s"]),
        ("`audit`, CPU", audits, "lines", lambda row: row["cpu_s"]),
    )
    for name, growth, size, seconds in sources:
        times = "; ".join(f"{seconds(row):.3g} s" for row in growth)
        sizes = "; ".join(f"{row[size]:,}" for row in growth)
        small, large = growth[0] if len(growth) == 1 else growth[-2], growth[-1]
        if small is large:
            rows.append([name, f"{sizes} {size}", times, NONE])
            continue
        factor = (seconds(large) - seconds(small)) / (large[size] - small[size])
        rows.append([name, f"{sizes} {size}", times, f"{1e6 * factor:.3g} s"])
    memory = [row["memory_bytes"] / 1e6 for row in pool]
    each = (memory[-1] - memory[-2]) / (pool[-1]["cells"] - pool[-2]["cells"])
    rows.append([
        "memory of a worker", "; ".join(f"{row['cells']:,}" for row in pool) + " cells",
        "; ".join(f"{m:.3g} MB" for m in memory), f"{1e6 * each:.3g} MB",
    ])  # fmt: skip
    return markdown(["what", "for", "measured", "a million more"], rows)


def scale_images() -> str:
    """Return what a million images take, from figures of one core."""
    bench, jobs = results("bench/bench.json"), results("bench/submission.json")["growth"][-1]
    images, volume = 1e6, bench["volume"]
    answer = bench["recommend"]
    rate = min(bench["bulk"]["rows_a_second"].values())
    read_ms = volume["load_ms"] * (1 + volume["characteristics_over_load"])
    one_row_ms = bench["predict"]["header_row_ms"]
    requests_s = bench["requests"]["images_100000_s"] * images / 1e5
    rows = [
        ["reading headers", f"{volume['header_ms']:.1f} ms",
         f"{volume['header_ms'] * images / 3.6e6:.1f} core-hours"],
        ["loading voxels and describing them, 256³", f"{read_ms:.0f} ms",
         f"{read_ms * images / 3.6e6:.0f} core-hours"],
        ["predictions in bulk, slowest of four", f"{rate:,.0f} rows a second",
         f"{images / rate:.0f} s a configuration"],
        ["predictions one by one, from headers, in one process", f"{one_row_ms:.1f} ms",
         f"{one_row_ms * images / 3.6e6:.1f} h; {1000 / one_row_ms:.0f} a second"],
        ["from features to recommendations",
         f"{answer['features_to_answer_s']:.1f} s for {answer['images']:,}",
         f"{answer['features_to_answer_s'] * images / answer['images']:.0f} s"],
        ["optimal sequences of requests", f"{requests_s / images * 1e6:.0f} µs",
         f"{requests_s:.0f} s"],
        [f"planning and rendering, per {jobs['jobs']:,} jobs",
         f"{jobs['plan_s'] + jobs['render_s']:.1f} s",
         f"{(jobs['plan_s'] + jobs['render_s']) * images / jobs['jobs'] / 60:.0f} min, "
         f"{images / 1000:,.0f} arrays or more"],
        ["rows of the campaign's history: read and summarised",
         f"{bench['campaign']['cells']['summarise']['first_s']:.1f} s for 10,000",
         f"{bench['campaign']['cells']['summarise']['first_s'] * images / 1e4:.0f} s"],
    ]  # fmt: skip
    return markdown(["step", "measured", "for a million"], rows)


WORTH_ARMS = {"default": "the site's default", "rule": "a rule", "voxcast": "voxcast"}
WORTH_POLICIES = {
    "as_asked": "as asked", "largest": "largest so far × 1.2",
    "last_five": "mean of the last five, × 1.5 after a failure", "predicted": "predicted",
}  # fmt: skip


def worth_rounds() -> str:
    """Return what three ways of asking led to on a private Slurm: means and ranges of rounds."""
    rounds = results("worth/rounds.json")["rounds"]
    rows = []
    for arm, label in WORTH_ARMS.items():
        of_arm = [r for r in rounds if r["arm"] == arm]
        failed = [_failures(r["outcomes"]) for r in of_arm]
        rows.append([
            label,
            str(len(of_arm)),
            *(
                _range([r[name] / 60 for r in of_arm], " min")
                for name in ("mean_wait_s", "longest_wait_s", "makespan_s", "others_mean_wait_s")
            ),
            "; ".join(failed),
            _amounts(of_arm, "core_h"),
            _amounts(of_arm, "gb_h"),
        ])  # fmt: skip
    head = [
        "asked for by", "rounds", "mean wait", "longest wait", "makespan", "mean wait of others",
        "attempts that failed, by round", "core-hours asked, held, used",
        "GB-hours asked, held, used",
    ]  # fmt: skip
    return markdown(head, rows)


def _failures(outcomes: dict[str, int]) -> str:
    failed = [f"{n} {cause.replace('_', ' ')}" for cause, n in sorted(outcomes.items())
              if cause != "completed"]  # fmt: skip
    return ", ".join(failed) or "none"


def _range(values: list[float], unit: str) -> str:
    mean = sum(values) / len(values)
    return f"{mean:.0f}{unit} ({min(values):.0f} to {max(values):.0f})"


def _amounts(rounds: list[dict[str, Any]], unit: str) -> str:
    means = (
        sum(r[f"{kind}_{unit}"] for r in rounds) / len(rounds)
        for kind in ("asked", "held", "used")
    )
    return ", ".join(f"{mean:.3g}" for mean in means)


def worth_ratios() -> str:
    """Return the ratios of ways of asking, by figure, with intervals over rounds."""
    ratios = results("worth/rounds.json")["ratios"]
    labels = {
        "mean_wait_s": "mean wait", "mean_turnaround_s": "mean turnaround",
        "makespan_s": "makespan", "others_mean_wait_s": "mean wait of others",
        "asked_core_h": "core-hours asked", "held_core_h": "core-hours held",
        "asked_gb_h": "GB-hours asked", "held_gb_h": "GB-hours held",
    }  # fmt: skip
    rows = [
        [label, *(_ratio(by_figure.get(name)) for by_figure in ratios.values())]
        for name, label in labels.items()
    ]
    return markdown(["", *(pair.replace("default", "the default") for pair in ratios)], rows)


def _ratio(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return NONE
    if ratio["interval"] is None:
        return f"{ratio['ratio']:.2f}"
    low, high = ratio["interval"]
    return f"{ratio['ratio']:.2f} ({low:.2f} to {high:.2f})"


def worth_simulator() -> str:
    """Return how far the simulator is from Slurm on the attempts of each round."""
    rows = [
        [
            WORTH_ARMS[r["arm"]], str(r["round"]), str(s["attempts"]),
            f"{s['mean_wait_slurm_s'] / 60:.1f} min", f"{s['mean_wait_simulated_s'] / 60:.1f} min",
            f"{s['median_absolute_difference_s'] / 60:.1f} min",
            f"{s['order_kendall_tau']:.2f}",
            f"{s['makespan_slurm_s'] / 60:.0f} min, {s['makespan_simulated_s'] / 60:.0f} min",
        ]
        for r in results("worth/rounds.json")["rounds"]
        for s in [r["simulator"]]
    ]  # fmt: skip
    head = [
        "asked for by", "round", "attempts", "mean wait in Slurm", "simulated",
        "median difference of starts", "Kendall's τ of starts", "all done in Slurm, simulated",
    ]  # fmt: skip
    return markdown(head, rows)


def worth_variants() -> str:
    """Return what other orders and other second requests would have led to, by simulation."""
    head = ["simulated", "mean wait", "mean turnaround", "makespan", "core-hours held", "killed"]
    rows = []
    for name, rounds in results("worth/variants.json").items():
        mean = {key: sum(r[key] for r in rounds) / len(rounds) for key in rounds[0]}
        minutes = (mean[key] / 60 for key in ("mean_wait_s", "mean_turnaround_s", "makespan_s"))
        rows.append([
            WORTH_ARMS.get(name, name), *(f"{value:.0f} min" for value in minutes),
            f"{mean['held_core_h']:.1f}", f"{mean['killed']:.0f}",
        ])  # fmt: skip
    return markdown(head, rows)


def worth_replay() -> str:
    """Return the ratios of policies to what was asked, on traces made here."""
    figures = {
        "mean_wait_s": "mean wait", "mean_turnaround_s": "mean turnaround",
        "makespan_s": "makespan", "asked_core_h": "core-hours asked",
        "held_core_h": "core-hours held", "asked_gb_h": "GB-hours asked",
        "held_gb_h": "GB-hours held",
    }  # fmt: skip
    rows = []
    for name, content in results("worth/replay.json")["by_load"].items():
        for policy, ratios in content["ratios"].items():
            cells = [_ratio(ratios.get(figure)) for figure in figures]
            rows.append([f"{name}: {WORTH_POLICIES[policy]}", *cells])
    return markdown(["", *figures.values()], rows)


def worth_killed() -> str:
    """Return waits and failures on the traces made here, and on the long one with its cost."""
    content = results("worth/replay.json")
    cases = {
        name: [replay[policy] for replay in by["replays"]]
        for key, by in content["by_load"].items()
        for policy, label in WORTH_POLICIES.items()
        for name in [f"{key}: {label}"]
    } | {
        f"long, {content['long']['jobs']:,} jobs: {label}": [content["long"]["replays"][policy]]
        for policy, label in WORTH_POLICIES.items()
    }
    rows = [
        [
            name,
            *(
                f"{100 * sum(r[count] for r in replays) / sum(r['jobs'] for r in replays):.1f} %"
                for count in ("killed", "killed_for_memory")
            ),
            f"{sum(r['mean_wait_s'] for r in replays) / len(replays) / 60:.1f} min",
            percent(100 * sum(r["lost_core_h"] for r in replays)
                    / sum(r["held_core_h"] for r in replays)),
            f"{max(r['simulation_cpu_s'] for r in replays):.1f} s",
        ]
        for name, replays in cases.items()
    ]  # fmt: skip
    head = [
        "", "kills, of jobs", "of these for memory", "mean wait", "core-hours lost",
        "CPU time of the simulation",
    ]  # fmt: skip
    return markdown(head, rows)


def parcel_cache() -> str:
    """What the cache saved in a parcel study."""
    both = results("parcel_study/parcel_study.json")["cache"]
    rows = [
        [
            f"{label} the cache", f"{part['volumes_read']}", f"{part['cpu_s']:.0f} s",
            f"{part['volumes_read_by_ensembles']}", f"{part['cpu_s_of_ensembles']:.0f} s",
            f"{100 * part['hit_rate']:.0f} %" if "hit_rate" in part else NONE,
        ]
        for label, part in ((label, both[label]) for label in ("without", "with"))
    ]  # fmt: skip
    fits, ensembles = both["with"]["runs"], both["with"]["ensembles"]
    head = ["", f"volumes read by {fits} fits", "CPU time", f"by {ensembles} ensembles",
            "CPU time", "hit rate"]  # fmt: skip
    return markdown(head, rows)


def parcel_ensembles() -> str:
    """R² of the ensembles and of their members, out of fold."""
    part = results("parcel_study/parcel_study.json")["cache"]["with"]
    members = [f"{value:.2f}" for value in part["r_squared_members"]]
    names = [f"member {number}" for number in range(1, len(members) + 1)]
    combined = part["r_squared"]
    return markdown(
        [*names, *sorted(combined)],
        [[*members, *(f"{combined[name]:.2f}" for name in sorted(combined))]],
    )


def parcel_passes() -> str:
    """What workers of two sizes did in one pool."""
    part = results("parcel_study/parcel_study.json")["passes"]
    rows = [
        [
            str(number), f"{row['workers']} of {row['memory_bytes'] / 1e9:.2g} GB",
            f"{row['recorded']} of {part['cells']}", str(row["left"]), str(row["given_up"]),
        ]
        for number, row in enumerate(part["passes"], 1)
    ]  # fmt: skip
    return markdown(["pass", "workers", "recorded", "left", "given up"], rows)


def parcel_cores() -> str:
    """Measured times of a parcel study by cores."""
    rows = [
        [
            f"{row['pipeline']}, {row['parcels']} parcels, {row['target']}", str(row["cpus"]),
            f"{row['runtime_s']:.1f} s", f"{row['cpu_s']:.1f} s",
        ]
        for row in results("parcel_study/parcel_study.json")["cores"]
    ]  # fmt: skip
    return markdown(["fit", "CPUs", "wall time", "CPU time"], rows)


def parcel_models() -> str:
    """Spread of a parcel study's runs, and errors on parameters that were never measured."""
    content = results("parcel_study/parcel_study.json")
    spread, errors = content["spread"], content["models"]["errors"]
    rows = []
    for target, label, unit, scale in (
        ("cpu_s", "CPU time", "s", 1.0), ("peak_rss_bytes", "memory", "MB", 1e6)
    ):  # fmt: skip
        values = spread[target]
        low, high = values["min"] / scale, values["max"] / scale
        rows.append([
            label, f"{low:.3g} to {high:.3g} {unit}", f"{values['high_over_low']:.2g}",
            *(
                with_interval(errors[name][target])
                for name in ("voxcast", "parameter_effects", "constant")
            ),
        ])  # fmt: skip
    head = [f"{spread['runs']} runs", "range", "highest over lowest", "voxcast, MAPE",
            "effects of parameters alone", "a constant"]  # fmt: skip
    return markdown(head, rows)


def plans() -> str:
    """Return makespan and core-hours of planned jobs beside those of simple ways."""
    ways = ("planned", "one_core_a_job", "whole_nodes")
    rows = []
    for row in results("plan/simulation.json")["rows"]:
        cells = [
            f"{row['cells']:,}",
            f"{row['job_start_s']:g} s",
            f"{row['bound_s'] / 3600:.2f} h",
        ]
        for name in ways:
            drawn = row["ways"][name]["drawn"]["0.3"]
            low, high = min(drawn["makespan_s"]) / 3600, max(drawn["makespan_s"]) / 3600
            hours, core_h = drawn["median_makespan_s"] / 3600, drawn["median_core_h"]
            cells.append(f"{hours:.2f} h ({low:.2f} to {high:.2f}); {core_h:,.0f}")
        rows.append([*cells, f"{row['ways']['planned']['jobs']:,}"])
    head = ["cells", "start of a job", "lower bound", "planned", "one core a job", "whole nodes",
            "planned jobs"]  # fmt: skip
    return markdown(head, rows)


TABLES = {
    make.__name__: make
    for make in (
        headline, reference, reference2, recorded, demo, methods, excess, questions, second, real,
        domain, ablation, scales, transfer, per_image, metronome, bench, family_pairs, curves,
        machines, registered_model, public_tables, scale_bounds, scale_machine, scale_claims,
        scale_growth, scale_images, worth_rounds, worth_ratios, worth_simulator,
        worth_replay, worth_killed, worth_variants,
        parcel_cache, parcel_ensembles, parcel_passes, parcel_cores, parcel_models,
        plans,
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
