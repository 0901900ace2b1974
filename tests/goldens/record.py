"""Wrote the files of this folder, from the root of a checkout of commit ac38fc7, with its code.

    python PATH/TO/tests/goldens/record.py PATH/TO/tests/goldens

They are not written again: tests compare the code of today with them.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

ROOT = Path.cwd()
SAMPLES = ROOT / "tests" / "samples" / "imports"
VERBS = {
    "requests_law": ["requests", "lognormal(3,0.5)"],
    "requests_checkpoints": [
        "requests", "exponential(1)", "--cost", "0.95,1,1.05",
        "--checkpoint", "0.1,0.2", "--points", "200",
    ],
    "requests_history": [
        "requests", "data/history/reference", "--app", "ants_segment",
        "--where", "scale=full_scale", "--where", "cpus=1",
    ],
    "requests_fitted": [
        "requests", "data/history/reference", "--app", "tile_segment",
        "--fit", "lognormal", "--where", "device=cpu",
    ],
    "replay": [
        "history", "replay", "data/history/reference", "--app", "tile_segment", "--trials", "1",
        "--folds", "2",
    ],
    "variation": [
        "history", "variation", "data/history/reference", "--by", "app,scale", "--bootstrap", "0",
    ],
    "variation_cpu": [
        "history", "variation", "data/history/reference", "--app", "ants_segment", "--where",
        "scale=full_scale", "--by", "cpus", "--target", "cpu_s", "--bootstrap", "0",
    ],
    "phases": ["phases", "chain", "data/history/reference", "--app", "ants_segment"],
}  # fmt: skip
RECOMMENDATIONS = {
    "recommend": ["recommend", "head.nii.gz"],
    "recommend_cluster": ["recommend", "head.nii.gz", "--cluster", "osc"],
    "recommend_cautious": ["recommend", "head.nii.gz", "--cluster", "osc", "--policy", "cautious"],
    "requests_image": ["requests", "head.nii.gz"],
}


def keys() -> None:
    """Count and hash of the recorded cell keys, by part of the history."""
    parts = {
        str(path.parent.relative_to(ROOT / "data/history")): sorted(
            pd.read_parquet(path, columns=["cell_key"])["cell_key"]
        )
        for path in sorted((ROOT / "data/history").glob("*/*/runs.parquet"))
    }
    hashed = {
        part: {
            "runs": len(listed),
            "sha256": hashlib.sha256("\n".join(listed).encode()).hexdigest(),
        }
        for part, listed in parts.items()
    }
    write("cell_keys.json", json.dumps(hashed, indent=1) + "\n")


HEADER = (
    "JobID|JobName|User|Account|Cluster|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw|"
    "TimelimitRaw|ReqMem|MaxRSS|AveRSS|NTasks|TotalCPU|AllocCPUS|NNodes|NodeList|AllocTRES|"
    "TRESUsageInTot|Reason"
)
STATES = (
    "COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED",
    "CANCELLED by 0", "CANCELLED by 1000", "NODE_FAIL", "PREEMPTED", "REQUEUED", "RUNNING",
    "PENDING", "DEADLINE", "BOOT_FAIL", "RESIZING", "COMPLETING",
)  # fmt: skip


def generated_lines(n_jobs: int = 260) -> Iterator[str]:
    """Jobs of many kinds, with steps, in every unit and notation of Slurm; some lines are torn."""
    draw = random.Random(28)  # noqa: S311
    yield HEADER
    for number in range(1, n_jobs + 1):
        job = draw.choice(
            [f"{number}", f"{number}", f"{number}", f"{number}_{draw.randint(0, 99)}",
             f"{number}_[4-9]", f"{number}_[1-10%3]", f"{number}+{draw.randint(0, 2)}"]
        )  # fmt: skip
        state = draw.choice(STATES)
        cpus, nodes = draw.choice([0, 1, 1, 2, 4, 16]), draw.choice([1, 1, 1, 2])
        elapsed = draw.choice([0, 1, 59, 600, 3723, 86400, 172801])
        day = draw.randint(1, 20)
        start = f"2024-05-{day:02}T10:00:00"
        end = (pd.Timestamp(start) + pd.Timedelta(seconds=elapsed)).isoformat()
        if draw.random() < 0.12:
            start, end = draw.choice(
                [("Unknown", "Unknown"), (start, "Unknown"), ("None", "None")]
            )
        limit = draw.choice(["1", "60", "120", "2880", "UNLIMITED", "Partition_Limit", "", "1.5"])
        reqmem = draw.choice(
            ["4Gc", "8Gn", "4000Mc", "16G", "0.50G", "0n", "2048M", "1T", "?", "", "4294967296"]
        )
        code = {"COMPLETED": "0:0", "FAILED": draw.choice(["1:0", "0:9", "137:0", "2:0", "0:11"]),
                "TIMEOUT": "0:15", "OUT_OF_MEMORY": "0:125"}.get(state, "0:0")  # fmt: skip
        tres = draw.choice(
            ["", f"billing={cpus},cpu={cpus},mem=8G,node={nodes}", f"cpu={cpus},mem=4096M",
             f"cpu={cpus},gres/gpu:a100=2,mem=64G,node=1",
             f"cpu={cpus},gres/gpu=1,gres/gpu:v100=1,mem=0"]
        )  # fmt: skip
        total = draw.choice(["00:10:00", "1-02:03:04", "05:30.250", "", "00:00:00", "INVALID"])
        reason = draw.choice(["", "", "None", "oom-kill event", "Dependency"])
        fields = [
            job, draw.choice(["recon", "app-sub-01", "wrap", "a b"]),
            draw.choice(["ann", "bob", ""]),
            "lab", "big", draw.choice(["normal", "gpu"]), state, code,
            f"2024-05-{day:02}T09:00:00", start, end, str(elapsed), limit, reqmem,
            "", "", "", total, str(cpus), str(nodes),
            draw.choice(["n1", "n[1-2]", "None assigned"]), tres, "", reason,
        ]  # fmt: skip
        line = "|".join(fields)
        kind = draw.random()
        if kind < 0.02:
            yield line[: len(line) // 2]
            continue
        if kind < 0.03:
            yield line + "|surplus"
            continue
        yield line
        if draw.random() < 0.85:
            for step in draw.choice([("batch", "extern"), ("batch", "extern", "0"), ("0", "1")]):
                rss = draw.choice(
                    ["1363148K", "1331.20M", "2G", "0", "", "1395864371", "0.5T", "many"]
                )
                tasks = draw.choice(["1", "1", "1", "2", "4", ""])
                used = draw.choice(["", "", "cpu=00:10:00,mem=3G,pages=0", "mem=524288K"])
                step_state = draw.choice([state, state, "COMPLETED", "OUT_OF_MEMORY", "CANCELLED"])
                own = "9999999" if draw.random() < 0.01 else job
                yield "|".join([
                    f"{own}.{step}", step, "", "lab", "big", "", step_state, code, "", start, end,
                    str(elapsed), "", "", rss, draw.choice(["", "700M"]), tasks, total, str(cpus),
                    str(nodes), "n1", "", used, "",
                ])  # fmt: skip
        if draw.random() < 0.01:
            yield ""


def accounting() -> None:
    """Rows, refused lines, jobs that never ran and unread fields of texts of ``sacct``."""
    sacct = importlib.import_module("voxcast.history.imports.sacct")

    write("accounting/generated.txt", "".join(f"{line}\n" for line in generated_lines()))
    sources = [
        *(SAMPLES / name for name in
          ("sacct.txt", "slurm_22_05_8.txt", "slurm_22_05_8_steps.txt",
           "slurm_22_05_8_tasks.txt")),
        OUT / "accounting" / "generated.txt",
    ]  # fmt: skip
    for source in sources:
        records = sacct.read(source)
        rows = [
            {name: value for name, value in row.items() if value not in (None, "", "{}", "[]")}
            for row in records.rows
        ]
        assert all(
            remark.line is not None for remark in [*records.bad, *records.skipped, *records.unread]
        )
        listed = {
            kind: [[remark.line, remark.reason] for remark in getattr(records, kind)]
            for kind in ("bad", "skipped", "unread")
        }
        lines = [
            '{"rows": [',
            ",\n".join(json.dumps(row, sort_keys=True, default=str) for row in rows),
            "],",
            ",\n".join(f'"{kind}": {json.dumps(remarks)}' for kind, remarks in listed.items()),
            "}\n",
        ]
        write(f"accounting/{source.stem}.json", "\n".join(lines))


def sbatch() -> None:
    """The line that starts workers of a pool, and the script that follows a submission.

    Scripts of arrays were recorded before: ``tests/samples/slurm``.
    """
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from planted_tasks import COPY, plan_of, shell_app, write_images
    from voxcast.jobs.script import array_line, follow_up_script
    from voxcast.jobs.submission import SlurmOptions, Submission
    from voxcast.records import Request

    request = Request(7322.5, 6 * 10**9, 4, 1)
    command = ["voxcast", "work", "--pool", "/data/a pool"]
    write(
        "sbatch/worker.txt",
        f"{array_line(command, request, 12, 'long')}\n{array_line(command, request, 12)}\n",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        plan = plan_of(
            shell_app(COPY), write_images(folder / "in", ["sub-01.nii"]),
            slurm=SlurmOptions(("account=lab", "qos=long"), throttle=8),
        )  # fmt: skip
        submission = Submission.create(plan, folder / "my out", "slurm")
        text = follow_up_script(submission, "debug", ["101", "202_3"])
        for found, put in (
            (str(submission.folder), "/data/my out/SUBMISSION"),
            (sys.executable, "PYTHON"), (submission.label, "LABEL"),
        ):  # fmt: skip
            text = text.replace(found, put)
        write("sbatch/follow.sbatch", text)


def answer(arguments: list[str]) -> object:
    """What a verb prints with ``--json``."""
    from voxcast.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*arguments, "--json"]) == 0, arguments
    text = out.getvalue()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def verbs() -> None:
    """JSON of verbs on the recorded histories, and of a champion of planted runs."""
    for name, arguments in VERBS.items():
        write_answer(name, arguments)
    from champions import register_champion
    from small_head import write_head

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copy2(ROOT / "params.yaml", folder)
        shutil.copytree(ROOT / "conf", Path(folder) / "conf")
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            os.environ.pop(name, None)
        register_champion(Path(folder), 40)
        write_head(Path("head.nii.gz"), spacing_mm=2.5, edge=80)
        for name, arguments in RECOMMENDATIONS.items():
            write_answer(name, arguments)


def write_answer(name: str, arguments: list[str]) -> None:
    content = {"arguments": arguments, "answer": rounded(answer(arguments))}
    write(f"verbs/{name}.json", json.dumps(content, indent=1) + "\n")


def rounded(value: object) -> object:
    """Floats with ten digits, as the last ones differ by machine."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


def write(name: str, text: str) -> None:
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    OUT = Path(sys.argv[1]).resolve()
    for part in (keys, accounting, sbatch, verbs):
        part()
