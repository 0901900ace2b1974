"""Options that several verbs share, their texts read; and the command of a verb with its help."""

from __future__ import annotations

import inspect
import json
import math
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from voxcast.errors import ConfigError, one_line
from voxcast.files import write_text
from voxcast.quantities import parse_seconds, parse_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from voxcast.allocation.requests.cost import CostModel
    from voxcast.api.question import Question

Json = Annotated[bool, Option("--json", hidden=True)]
Project = Annotated[Path | None, Option("--project", hidden=True)]

Images = Annotated[list[Path] | None, Argument(metavar="IMAGE...", show_default=False)]
Histories = Annotated[
    list[Path],
    Argument(
        metavar="HISTORY...",
        help="a folder of data/history, one of its parts, or a folder of runs such as "
        "data/runs/cpu",
    ),
]
App = Annotated[str | None, Option("--app", metavar="NAME", help="An application of conf/app.")]
Cpus = Annotated[
    str | None,
    Option("--cpus", metavar="N,N", help="Numbers of CPUs; by default those that were measured."),
]
Gpus = Annotated[
    str | None, Option("--gpus", metavar="N,N", help="Numbers of GPUs; 0 for none at all.")
]
Parameters = Annotated[
    list[str] | None,
    Option("-p", "--param", metavar="NAME=VALUE", help="A parameter of the application."),
]
Model = Annotated[
    str | None,
    Option(
        "--model", metavar="MODEL",
        help="A version, a model folder, or the URL of `voxcast serve`; by default the champion.",
    ),
]  # fmt: skip
HeaderOnly = Annotated[bool, Option("--header-only", help="Read headers, but no voxels.")]
Machine = Annotated[
    str | None,
    Option(
        "--machine", metavar="NAME",
        help="Predict for this machine: its id, a host class or a node type; by default this one.",
    ),
]  # fmt: skip
Where = Annotated[
    list[str] | None,
    Option(
        "--where", metavar="NAME=VALUE",
        help="Only runs with this value of a column, label:NAME or parameter:NAME.",
    ),
]  # fmt: skip
Cost = Annotated[
    str, Option("--cost", metavar="A,B,C", help="Prices of requested time, used time, request.")
]
PLAIN_COST = "1,0,0"
Checkpoint = Annotated[
    str | None,
    Option(
        "--checkpoint", metavar="WRITE,RESTART",
        help="Durations of writing a checkpoint and of a restart, for jobs that can.",
    ),
]  # fmt: skip
Set = Annotated[
    list[str] | None,
    Option("-S", "--set", metavar="KEY=VALUE", help="Change a key of the configuration."),
]
TimeBudget = Annotated[
    str | None, Option("--time-budget", metavar="2h", help="Stop starting runs after this time.")
]
Pattern = Annotated[
    list[str] | None,
    Option(
        "--pattern",
        metavar="REGEX",
        help="Takes application and subject out of a job's name, by groups (?P<app>...) and "
        "(?P<subject>...).",
    ),
]
Participants = Annotated[
    list[str] | None,
    Option(
        "--participant-label", metavar="LABEL,LABEL",
        help="Participants of the dataset to use, with or without sub-.",
    ),
]  # fmt: skip
Cluster = Annotated[
    str | None,
    Option(
        "--cluster", metavar="NAME[:PARTITION]",
        help="A cluster of conf/cluster, `local` for this machine.",
    ),
]  # fmt: skip
Policy = Annotated[
    str | None, Option("--policy", metavar="NAME", help="safe, balanced or cheapest.")
]
Deadline = Annotated[
    str | None,
    Option(
        "--deadline", metavar="2h|WHEN",
        help="Finish within this time, or by a date such as 2030-01-31T18:00.",
    ),
]  # fmt: skip
Budget = Annotated[
    str | None, Option("--budget", metavar="USD", help="Largest cost of one image.")
]
T = TypeVar("T")
_COUNT = re.compile(r"\d{1,9}", re.ASCII)


def question(
    app: str | None,
    cpus: str | None,
    gpus: str | None,
    parameters: list[str] | None,
    model: str | None,
    project: Path | None,
    *,
    budget: str | None = None,
    changes: list[str] | None = None,
    **others: Any,
) -> Question:
    """Return the question of a verb; errors as `counts` and `voxcast.api.question.Question`."""
    from voxcast.api.question import Question

    return Question(
        app, counts(cpus, "--cpus"), counts(gpus, "--gpus", least=0), parameters or (), model,
        project, budget_usd=None if budget is None else parse_usd(budget), changes=changes or (),
        **others,
    )  # fmt: skip


def show(content: object, lines: Iterable[str], *, as_json: bool, out: Path | None = None) -> int:
    """Print a result, as one JSON document or as lines of text, and return exit code 0.

    Parameters
    ----------
    content : object
        Made of JSON's types, and numbers of numpy.
    lines : iterable of str
        Only read without `as_json`.
    out : Path, optional
        File to write instead.
    """
    text = json.dumps(content, indent=2, default=float) if as_json else "\n".join(lines)
    if out is not None:
        write_text(out, f"{text}\n")
    elif text:
        print(text)
    return 0


def counts(text: str | None, option: str, *, least: int = 1) -> tuple[int, ...] | None:
    """Read whole numbers such as ``1,2``; None stays None.

    Raises
    ------
    ConfigError
        If one is not a whole number of at least ``least``.

    Examples
    --------
    >>> counts("1,2", "--cpus")
    (1, 2)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all(_COUNT.fullmatch(part) and int(part) >= least for part in parts):
        return tuple(int(part) for part in parts)
    raise ConfigError(f"must be whole numbers of at least {least}, not {text!r}", option)


def seconds(text: str | None, option: str) -> float | None:
    """Read a duration such as ``2h``, ``90min`` or ``3600s``; None stays None."""
    return None if text is None else quantity(parse_seconds, text, option)


def quantity(parse: Callable[[str], T], text: str, option: str) -> T:
    """Read a number with its unit.

    Raises
    ------
    ConfigError
        If it is another text.
    """
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(one_line(error), option) from None


def numbers(text: str, count: int, option: str) -> tuple[float, ...]:
    """Read ``count`` finite numbers such as ``1,0,0``.

    Raises
    ------
    ConfigError
        If there are more or fewer, or one is not a finite number.
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(map(math.isfinite, values)):
        raise ConfigError(f"must be {count} numbers with commas between, not {text!r}", option)
    return values


def cost_model(prices: str, checkpoint: str | None = None) -> CostModel:
    """Read the prices of a request, and the durations of a checkpoint such as ``30s,10s``.

    Raises
    ------
    ConfigError
        If there are more or fewer, or one is negative.
    """
    from voxcast.allocation.requests.cost import CostModel

    texts = ["0", "0"] if checkpoint is None else checkpoint.split(",")
    try:
        durations = [float(text) for text in texts]
    except ValueError:
        durations = [seconds(text, "--checkpoint") or 0.0 for text in texts]
    if len(durations) != 2 or not all(0 <= value < math.inf for value in durations):
        problem = f"must be two durations with a comma between, not {checkpoint!r}"
        raise ConfigError(problem, "--checkpoint")
    return CostModel(*numbers(prices, 3, "--cost"), *durations)


def labels_of(texts: list[str] | None) -> list[str]:
    """Return participant labels, which may be separated by commas."""
    return [label for text in texts or () for label in text.split(",") if label]


def interruptible() -> None:
    """Let SIGTERM, of batch systems, and SIGHUP, of terminals, interrupt as Ctrl-C does.

    Otherwise runs would outlive this process. What ``nohup`` ignores stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def refuse(values: Mapping[str, object], problem: str, then: str | None = None) -> None:
    """Refuse the first option that was given.

    Raises
    ------
    ConfigError
        If a value is not empty.
    """
    if named := [option for option, value in values.items() if value]:
        raise ConfigError(problem, named[0], then)


def refuse_if(*rules: tuple[bool, str, object, str | None]) -> None:
    """Refuse by the first rule that holds: whether it does, the problem, its place, the remedy.

    Raises
    ------
    ConfigError
        If one does.
    """
    for holds, problem, where, then in rules:
        if holds:
            raise ConfigError(problem, where, then)


WIDTH = 100  # of the help


class Command(TyperCommand):
    """A command whose help is plain text, and which names an argument too many."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and refuse any that are left."""
        rest = super().parse_args(ctx, args)
        if rest:
            then = f"see `{ctx.info_name} --help`"
            raise ConfigError("one argument too many", rest[0], then)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, without the types of Python."""
        formatter.width = WIDTH
        for title in ("Argument", "Option"):
            parameters = (p for p in self.get_params(ctx) if p.param_type_name == title.lower())
            records = [record for p in parameters if (record := p.get_help_record(ctx))]
            if records:
                rows = [(name.partition(" <")[0], text) for name, text in records]
                with formatter.section(f"{title}s"):
                    formatter.write_dl(rows)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the metavars of the arguments, after the options."""
        arguments = (p for p in self.get_params(ctx) if p.param_type_name == "argument")
        return ["[OPTIONS]", *(p.metavar or p.name.upper() for p in arguments)]


def command_of(function: Callable[..., int], name: str) -> TyperCommand:
    """Return the command that a function is, with its docstring as help."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    text = (inspect.getdoc(function) or "").replace("``", "")
    settings = {"allow_extra_args": True, "max_content_width": WIDTH}
    app.command(name, cls=Command, help=text, context_settings=settings)(function)
    command = typer.main.get_command(app)
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{name}: not a single command")
    return command
