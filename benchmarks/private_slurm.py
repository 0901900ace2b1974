"""A private Slurm of several virtual nodes on this machine, for tests and demonstrations.

Daemons of Debian's packages (slurm-wlm, slurmdbd, munge, mariadb-server) run in a folder of their
own, listen on loopback at free ports only, and are stopped by their recorded process ids::

    python benchmarks/private_slurm.py up /tmp/lab --nodes 3     # then: export SLURM_CONF=…
    python benchmarks/private_slurm.py down /tmp/lab
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import psutil

import private_slurm_database as database
from private_slurm_conf import CPUS, Layout, cgroup_conf, gres_conf, slurm_conf, slurmdbd_conf
from private_slurm_daemons import Daemons

PROGRAMS = (
    "munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "mariadb-install-db", "sbatch",
    "sacct",
)  # fmt: skip
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
PACKAGES = "slurm-wlm slurmdbd slurm-client munge mariadb-server"
TRIES = 3
START_S = 120.0  # patience with one daemon on a busy machine
# Below the range from which the kernel takes the ports of outgoing connections: otherwise one of
# them may take a port between its choice and the start of the daemon.
PORTS = range(12_000, 32_000)


class PrivateSlurmError(Exception):
    """A daemon is not installed, or did not start."""


def missing_programs() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{SBIN}"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_ports(number: int) -> tuple[int, ...]:
    candidates = random.sample(PORTS, len(PORTS))
    free = (port for port in candidates if _is_free(port))
    return tuple(next(free) for _ in range(number))


@dataclass
class PrivateSlurm:
    """Daemons in a folder; start with `start`, or use as a context manager.

    Parameters
    ----------
    folder : Path
        Made if missing; must not hold a running instance.
    nodes : int
        Virtual nodes.
    memory : {"linux", "cgroup"}
        Who enforces memory: Slurm's sampling, or the kernel.
    accounting : bool
        Whether slurmdbd is started; without it there is no ``sacct``.
    gpus : int
        GPUs that each node claims to have, at most 4.
    node_cpus, node_memory_mb : int
        What each node claims to have, whatever this machine has.
    clock : int
        How many times faster than time the clock of its processes runs, under ``faketime``.
    """

    folder: Path
    nodes: int = 3
    memory: Literal["linux", "cgroup"] = "linux"
    accounting: bool = True
    node_memory_mb: int = 4000
    gpus: int = 0
    node_cpus: int = CPUS
    clock: int = 1
    layout: Layout = field(init=False)
    daemons: Daemons = field(init=False)

    def __post_init__(self) -> None:
        self.folder = Path(self.folder).absolute()
        self.daemons = Daemons(self.folder)
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(self.nodes + 3)
        self.layout = Layout(
            self.folder, host, getpass.getuser(), ports, self.nodes, self.memory,
            self.accounting, self.node_memory_mb, self.gpus, self.node_cpus, self.clock,
        )  # fmt: skip

    def __enter__(self) -> PrivateSlurm:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which the commands of Slurm use this instance."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @property
    def node_names(self) -> list[str]:
        """Names of the virtual nodes."""
        return self.layout.node_names

    def start(self) -> None:
        """Start all daemons and wait until every node is idle.

        If a daemon does not start, all are stopped and started again at other ports.

        Raises
        ------
        PrivateSlurmError
            If a program is missing, the folder is in use, or a daemon does not answer.
        """
        if missing := missing_programs():
            raise PrivateSlurmError(f"not installed: {', '.join(missing)}; install {PACKAGES}")
        if self.daemons.is_recorded:
            raise PrivateSlurmError(f"{self.folder}: is up, or was not stopped")
        for tries_left in reversed(range(TRIES)):
            try:
                self._start_once()
                return
            except (PrivateSlurmError, subprocess.SubprocessError) as error:
                self.daemons.stop_all()
                if not tries_left:
                    raise PrivateSlurmError(str(error)) from error
            self._clear()
            self.layout = replace(self.layout, ports=_free_ports(self.nodes + 3))

    def _clear(self) -> None:
        for name in ("state", "munge", "socket", "db", *map("spool.{}".format, self.node_names)):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _start_once(self) -> None:
        for name in ("log", "state", "munge", "socket", "db"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "munge").chmod(0o700)
        self._write_configuration()
        self._start_munge()
        if self.accounting:
            self._start_database()
            self.start_daemon("slurmdbd")
            self._wait_for("slurmdbd", "sacctmgr", "-n", "show", "cluster")
            self.command("sacctmgr", "-i", "add", "cluster", "lab", check=False)
            if (user := getpass.getuser()) != "root":  # who is there from the beginning
                self.command("sacctmgr", "-i", "add", "account", "lab", check=False)
                self.command("sacctmgr", "-i", "add", "user", user, "account=lab", check=False)
        self.start_daemon("slurmctld")
        self._wait_for("slurmctld", "scontrol", "ping")
        for name in self.node_names:
            self.start_daemon(name)
        self.wait(self._all_running_and_idle, "the nodes", START_S)

    def stop(self) -> None:
        """Cancel all jobs and stop all daemons, the newest first."""
        if "slurmctld" in self.daemons.names():
            # Jobs that do not end in time must not keep the daemons alive.
            with contextlib.suppress(subprocess.SubprocessError, PrivateSlurmError):
                self._cancel_jobs()
        self.daemons.stop_all()

    def clear(self) -> None:
        """Cancel all jobs and bring back all nodes, for the next user of this instance."""
        self._cancel_jobs()
        for name in self.node_names:
            if not self.daemons.is_running(name):
                self.start_daemon(name)
        # A node that is up already is no error here.
        resumed = ("scontrol", "update", f"NodeName={','.join(self.node_names)}", "State=RESUME")
        self.command(*resumed, check=False)
        self.wait(self._all_idle, "the nodes")

    def _cancel_jobs(self) -> None:
        self.command("scancel", "-u", getpass.getuser(), check=False, timeout_s=10)
        self.wait(lambda: not self._output("squeue", "-h"), "the jobs", 20)

    def start_daemon(self, name: str) -> None:
        """Start ``slurmctld``, ``slurmdbd`` or the slurmd of a node by its name."""
        arguments = ["slurmd", "-D", "-N", name] if name in self.node_names else [name, "-D"]
        arguments += ["-i"] if name == "slurmctld" else []
        self.daemons.start(name, arguments, self._environment())

    def stop_daemon(self, name: str, *, kill: bool = False) -> None:
        """Stop a daemon; with ``kill`` at once, as a crash does."""
        self.daemons.stop(name, kill=kill)

    def kill_node(self, name: str) -> None:
        """Kill the slurmd of a node and its jobs' processes, as a crash of the node does."""
        self.stop_daemon(name, kill=True)
        spool = str(self.folder / f"spool.{name}")
        for process in psutil.process_iter(["name"]):
            if process.info["name"] == "slurmstepd":
                with contextlib.suppress(psutil.Error):
                    opened = [file.path for file in process.open_files()]
                    if spool in process.cwd() or any(spool in path for path in opened):
                        process.kill()

    def command(
        self, *arguments: str, check: bool = True, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm against this instance."""
        return subprocess.run(
            arguments, env=self._environment(), capture_output=True, text=True, check=check,
            timeout=timeout_s * self.clock,
        )  # fmt: skip

    def wait(self, condition: Callable[[], bool], subject: str, patience_s: float = 60.0) -> None:
        """Wait until a condition holds.

        Raises
        ------
        PrivateSlurmError
            If it does not within the time.
        """
        deadline = time.monotonic() + patience_s * self.clock
        while not condition():
            if time.monotonic() > deadline:
                raise PrivateSlurmError(f"{subject}: not ready, see {self.folder / 'log'}")
            time.sleep(0.05)

    def _wait_for(self, daemon: str, *question: str) -> None:
        """Wait until a daemon that has just been started answers a command."""

        def answers() -> bool:
            self._check_running(daemon)
            return self._answers(*question)

        self.wait(answers, daemon, START_S)

    def _check_running(self, daemon: str) -> None:
        if not self.daemons.is_running(daemon):
            log = self.folder / "log" / f"{daemon}.out"
            last = log.read_text(errors="replace").rstrip().rpartition("\n")[2]
            raise PrivateSlurmError(f"{daemon}: ended at its start, see {log}: {last}")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "PATH": _path()}

    def _answers(self, *arguments: str) -> bool:
        try:
            return self.command(*arguments, check=False, timeout_s=10).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _output(self, *arguments: str) -> str:
        return self.command(*arguments, check=False, timeout_s=10).stdout.strip()

    def _all_idle(self) -> bool:
        listed = self._output("sinfo", "-h", "-N", "-p", "debug", "-t", "idle", "-o", "%N")
        return set(self.node_names) <= set(listed.split())

    def _all_running_and_idle(self) -> bool:
        for name in self.node_names:
            self._check_running(name)
        return self._all_idle()

    def _write_configuration(self) -> None:
        texts: Mapping[str, str] = {
            "slurm.conf": slurm_conf(self.layout),
            "slurmdbd.conf": slurmdbd_conf(self.layout),
            "cgroup.conf": cgroup_conf(self.layout),
            "gres.conf": gres_conf(self.layout),
        }
        for name, text in texts.items():
            if text:
                path = self.folder / name
                path.write_text(text)
                path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)

    def _start_munge(self) -> None:
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        arguments = [
            "munged", "-F", "--force", f"--key-file={munge / 'key'}",
            f"--socket={self.layout.munge_socket}", f"--pid-file={munge / 'pid'}",
            f"--log-file={munge / 'log'}", f"--seed-file={munge / 'seed'}",
        ]  # fmt: skip
        self.daemons.start("munged", arguments, self._environment())
        self._wait_for("munged", "munge", "-n", "-S", str(self.layout.munge_socket))

    def _start_database(self) -> None:
        folder, user = self.folder / "db", getpass.getuser()
        self.command(*database.install_command(folder, user), timeout_s=120)
        command = database.daemon_command(folder, user, self.layout.database_port)
        self.daemons.start("mariadbd", command, self._environment())
        client = database.client_options(folder)
        self._wait_for("mariadbd", "mariadb-admin", *client, "ping")
        self.command("mariadb", *client, "-e", database.STATEMENTS)


@contextlib.contextmanager
def stopped_daemon(slurm: PrivateSlurm, name: str) -> Iterator[None]:
    """Stop a daemon for the block."""
    slurm.stop_daemon(name)
    try:
        yield
    finally:
        slurm.start_daemon(name)


def main() -> int:
    """Start or stop an instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--memory", choices=("linux", "cgroup"), default="linux")
    parser.add_argument(
        "--gpus", type=int, choices=range(5), default=0, help="of each node, not real ones"
    )
    parser.add_argument("--without-accounting", action="store_true", help="no slurmdbd, no sacct")
    args = parser.parse_args()
    slurm = PrivateSlurm(
        args.folder, args.nodes, args.memory, not args.without_accounting, gpus=args.gpus
    )
    if args.action == "down":
        slurm.stop()
        return 0
    try:
        slurm.start()
    except PrivateSlurmError as error:
        slurm.stop()
        print(error, file=sys.stderr)
        return 2
    print(f"export SLURM_CONF={slurm.environment['SLURM_CONF']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
