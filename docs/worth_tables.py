"""Tables of docs/worth.md: the same jobs asked for in several ways."""

from __future__ import annotations

from typing import Any

from table_text import NONE, markdown, results

WORTH_ARMS = {"default": "the site's default", "rule": "a rule", "voxcast": "voxcast"}


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


def worth_growth() -> str:
    """Return how rules for requests after the bound compare, on runs outside the rounds."""
    content = results("ladders/growth.json")
    rules = {
        "1.35": "at least × 1.35", "1.5": "× 1.5", "2": "× 2", "3": "× 3",
        "spread": "bound over median", "other_folds": "best in other folds",
        "other_data": "best in other data",
    }  # fmt: skip
    rows = []
    for name, of in {**content["apps"], "all five": content["pooled"], **content["laws"]}.items():
        is_law = name in content["laws"]
        base, half_more = (of["rules"][rule]["attempts"] for rule in ("1.2", "1.5"))
        rows.append([
            name if is_law or name == "all five" else f"`{name}`",
            "exact" if is_law else f"{of['beyond']} of {of['runs']}",
            f"{of['excess']['0.5']:.2f}, {of['excess']['1.0']:.2f}",
            f"{base:.2f}, {half_more:.2f}",
            *(_growth(of["rules"].get(rule)) for rule in rules),
        ])  # fmt: skip
    head = [
        "", "runs beyond the bound", "used over bound: median, largest",
        "attempts of these: × 1.2, × 1.5", *rules.values(),
    ]  # fmt: skip
    return markdown(head, rows)


def _growth(rule: dict[str, Any] | None) -> str:
    if rule is None:
        return NONE
    return "; ".join(_ratio(rule["ratios"][figure]) for figure in ("turnaround", "held"))


TABLES = (
    worth_rounds,
    worth_ratios,
    worth_growth,
)
