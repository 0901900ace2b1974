"""The command line: one module per verb, each a function whose parameters are its options."""

from __future__ import annotations

import difflib
import importlib
import logging
import sys
from inspect import getdoc
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, exits_cleanly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# What each verb does; its module is imported only when it is called.
GROUPS = {
    "Ask": {
        "predict": "predict runtime and memory of an image, or of the rows of a table",
        "recommend": "recommend the cheapest request that is safe",
        "requests": "compute sequences of ever longer requests, and their expected cost",
        "inspect": "show the header and the characteristics of an image, or a project's images",
    },
    "Learn": {
        "init": "write a project into a folder, for your own images and applications",
        "app": "describe an application by its command line, and try it",
        "measure": "run an application here, or a campaign, and measure it",
        "learn": "measure, train and register a model of your images, or of any table",
    },
    "Run": {
        "submit": "run an application on a cluster with predicted requests",
        "status": "show a submission or a campaign, or whether predictions still hold",
    },
    "Data and models": {
        "history": "import, describe, replay and compare recorded runs",
        "audit": "what the jobs of a site asked for, used and lost, from its accounting",
        "models": "list, compare, promote and roll back versions of the model",
        "phases": "time and memory by phase, also of parallel programs",
        "serve": "serve predictions over HTTP",
        "doctor": "what works on this machine, and what that means for measurements",
    },
}
VERBS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
MODULES = {  # of verbs that share one
    "init": "app", "submit": "run", "status": "run",
    **dict.fromkeys(("predict", "recommend", "requests", "inspect"), "ask"),
}  # fmt: skip
# Of the errors of the parser.
_WORDS = {
    "Input should be": "must be", "greater than or equal to": "at least",
    "less than or equal to": "at most",
}  # fmt: skip
GLOBAL_OPTIONS = """\
Options of every verb, before or after it:
  --project DIR  the project (default: VOXCAST_PROJECT, else the nearest parent folder)
  --json         print one JSON document
  -q, --quiet    print warnings and errors only
  --version      print the version
  --help         print the help of a verb"""


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run a verb; the entry point ``voxcast``."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    before, rest = _leading_options(arguments)
    if "--version" in before:
        print(f"voxcast {voxcast.__version__}")
        return 0
    if not rest or "--help" in before:
        print(_overview(), file=sys.stdout if "--help" in before else sys.stderr)
        return 0 if "--help" in before else EXIT_BAD_INPUT
    verb, *words = rest
    if verb not in VERBS:
        raise ConfigError("unknown verb", verb, meant(verb, VERBS, "see `voxcast --help`"))
    module = importlib.import_module(f"voxcast.cli.{MODULES.get(verb, verb)}")
    name = f"voxcast {verb}"
    if hasattr(module, verb):
        return _run(getattr(module, verb), name, before, words)
    actions: Mapping[str, Callable[..., int]] = module.ACTIONS
    more, words = _leading_options(words)
    if "--help" in more or (not words and "" not in actions):
        print(_overview_of(verb, actions), file=sys.stdout if "--help" in more else sys.stderr)
        return 0 if "--help" in more else EXIT_BAD_INPUT
    if words and words[0] in actions:
        action, *words = words
        return _run(actions[action], f"{name} {action}", [*before, *more], words)
    if words and not words[0].startswith("-"):
        then = meant(words[0], actions, f"see `{name} --help`")
        raise ConfigError("unknown action", words[0], then)
    return _run(actions[""], name, [*before, *more], words)


def meant(word: str, words: Iterable[str], otherwise: str) -> str:
    """Return a question for the word of ``words`` most like ``word``, else ``otherwise``.

    Examples
    --------
    >>> meant("perdict", ["predict", "phases"], "see the list")
    'did you mean predict?'
    """
    alike = difflib.get_close_matches(word, list(words), n=1)
    return f"did you mean {alike[0]}?" if alike else otherwise


def _leading_options(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split the options of every verb off the front of the arguments."""
    rest = list(arguments)
    options = []
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--project":
            if not rest:
                raise ConfigError("needs a value", word, "see `voxcast --help`")
            options += [word, rest.pop(0)]
        elif word in ("--json", "-q", "--quiet", "--version", "--help") or word.startswith(
            "--project="
        ):
            options.append(word)
        else:
            return options, [word, *rest]
    return options, rest


def _run(function: Callable[..., int], name: str, before: list[str], words: list[str]) -> int:
    """Parse the words by the parameters of a function, call it, and return its exit code."""
    import typer
    from typer.exceptions import TyperException

    from voxcast.cli.options import command_of

    at = words.index("--") if "--" in words else len(words)
    options = [*words[:at], *before]
    if {"-q", "--quiet"} & set(options):
        logging.getLogger("voxcast").setLevel(logging.WARNING)
        options = [word for word in options if word not in ("-q", "--quiet")]
    command = command_of(function, name)
    try:
        with command.make_context(name, [*options, *words[at:]]) as context:
            context.obj = [*name.split(), *words]
            return int(command.invoke(context) or 0)
    except typer.Exit as end:  # of --help
        return end.exit_code
    except TyperException as error:
        raise _refusal(error, name, words) from None


def _refusal(error: Any, name: str, words: list[str]) -> ConfigError:
    """Return the error of the parser in our words."""
    see = f"see `{name} --help`"
    if "--command" in words:
        then = "quote all of it: --command 'tool --in {image} --out {out}/out.nii.gz'"
        return ConfigError("needs quotes around the whole command line", "--command", then)
    if (option := getattr(error, "option_name", None)) is not None:
        if not hasattr(error, "possibilities"):  # the option is known; its value is missing
            return ConfigError("needs a value", option, see)
        return ConfigError("unknown option", option, meant(option, error.possibilities or (), see))
    parameter = getattr(error, "param", None)
    where = name.removeprefix("voxcast ")
    if parameter is None:
        return ConfigError(error.message, where, see)
    is_option = parameter.param_type_name == "option"
    place = parameter.opts[0] if is_option else parameter.metavar or parameter.name
    if not error.message:
        return ConfigError("is missing", place, see)
    first, _, rest = error.message.rstrip(".").partition(", ")
    text = rest if first == "Value error" else first
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return ConfigError(text[0].lower() + text[1:], place, see)


def _overview() -> str:
    """Return the help of the command line: its verbs in groups."""
    lines = [voxcast.__doc__ or "", "", "Usage: voxcast VERB [OPTIONS]"]
    for group, verbs in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {verb:10} {text}" for verb, text in verbs.items())]
    return "\n".join([*lines, "", GLOBAL_OPTIONS])


def _overview_of(verb: str, actions: Mapping[str, Callable[..., int]]) -> str:
    """Return the help of a verb with several actions."""
    text = VERBS[verb]
    lines = [f"{text[0].upper()}{text[1:]}.", "", f"Usage: voxcast {verb} ACTION [OPTIONS]", ""]
    for action, function in actions.items():
        if action:
            first = (getdoc(function) or "").partition("\n")[0]
            lines.append(f"  {action:10} {first}")
    if "" in actions:
        default = next(name for name in actions if name and actions[name] is actions[""])
        lines += ["", f"Without an action: {default}."]
    return "\n".join([*lines, "", f"`voxcast {verb} ACTION --help` prints the options."])
