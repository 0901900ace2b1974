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
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

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
PIDS = "pids.json"
STOP_S = 10.0
STAND_INS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")  # for GPUs
# What slurmdbd needs before its first start.
STATEMENTS = (
    "create database slurm_acct; create user slurm@'127.0.0.1' identified by 'slurm'; "
    "grant all on slurm_acct.* to slurm@'127.0.0.1';"
)


class PrivateSlurmError(Exception):
    """A daemon is not installed, or did not start."""


def missing_programs() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{SBIN}"


def _host() -> str:
    return socket.gethostname().partition(".")[0]


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


@dataclass(frozen=True)
class Daemons:
    """Processes by name, whose ids are in a file of `folder`: whoever comes later can stop them.

    An id is that of a daemon only while its process was created when the daemon was.
    """

    folder: Path

    @property
    def is_recorded(self) -> bool:
        """Whether any were started and not stopped."""
        return (self.folder / PIDS).exists()

    def names(self) -> list[str]:
        """Return those that were started, the oldest first."""
        return list(self._pids())

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a daemon in a session of its own; its output goes to ``log/NAME.out``."""
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        created = psutil.Process(process.pid).create_time()
        self._record({**self._pids(), name: (process.pid, created)})

    def is_running(self, name: str) -> bool:
        """Whether a daemon was started and has not ended."""
        pid, created = self._pids().get(name, (0, 0.0))
        try:
            process = psutil.Process(pid)
            alive = process.status() != psutil.STATUS_ZOMBIE
            return pid > 0 and alive and process.create_time() == created
        except psutil.NoSuchProcess:
            return False

    def stop(self, name: str, *, kill: bool = False) -> None:
        """Stop a daemon; with ``kill`` at once, as a crash does."""
        pid, created = self._pids().get(name, (0, 0.0))
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid) if pid else None
            if process is not None and process.create_time() == created:
                process.kill() if kill else process.terminate()
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(STOP_S)
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    process.wait(STOP_S)
        self._record({n: entry for n, entry in self._pids().items() if n != name})

    def stop_all(self) -> None:
        """Stop all, the newest first."""
        for name in reversed(self.names()):
            self.stop(name)
        (self.folder / PIDS).unlink(missing_ok=True)

    def _pids(self) -> dict[str, tuple[int, float]]:
        path = self.folder / PIDS
        if not path.exists():
            return {}
        return {
            name: (pid, created) for name, (pid, created) in json.loads(path.read_text()).items()
        }

    def _record(self, pids: Mapping[str, tuple[int, float]]) -> None:
        (self.folder / PIDS).write_text(json.dumps(pids, indent=1))


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
    node_cpus: int = 4
    clock: int = 1
    ports: tuple[int, ...] = field(init=False)  # slurmctld, slurmdbd, the database, each node
    daemons: Daemons = field(init=False)

    def __post_init__(self) -> None:
        self.folder = Path(self.folder).absolute()
        self.daemons = Daemons(self.folder)
        self.ports = _free_ports(self.nodes + 3)

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
        """Names of the nodes; control groups are named by them, so they differ by instance."""
        return [f"n{n}p{self.ports[0]}" for n in range(1, self.nodes + 1)]

    @property
    def munge_socket(self) -> Path:
        """Socket of munged, apart from its key."""
        return self.folder / "socket" / "munge"

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
            self.ports = _free_ports(self.nodes + 3)

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
            "slurm.conf": slurm_conf(self),
            "slurmdbd.conf": slurmdbd_conf(self),
            "cgroup.conf": cgroup_conf(self),
            "gres.conf": gres_conf(self),
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
            f"--socket={self.munge_socket}", f"--pid-file={munge / 'pid'}",
            f"--log-file={munge / 'log'}", f"--seed-file={munge / 'seed'}",
        ]  # fmt: skip
        self.daemons.start("munged", arguments, self._environment())
        self._wait_for("munged", "munge", "-n", "-S", str(self.munge_socket))

    def _start_database(self) -> None:
        folder, user = self.folder / "db", f"--user={getpass.getuser()}"
        data, address = f"--datadir={folder / 'data'}", str(folder / "s")  # 107 characters at most
        self.command(
            "mariadb-install-db", "--no-defaults", user, data, "--skip-test-db",
            "--auth-root-authentication-method=normal", timeout_s=120,
        )  # fmt: skip
        daemon = [
            "mariadbd", "--no-defaults", user, data, f"--socket={address}",
            f"--pid-file={folder / 'pid'}", "--bind-address=127.0.0.1", f"--port={self.ports[2]}",
            "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve",
        ]  # fmt: skip
        self.daemons.start("mariadbd", daemon, self._environment())
        client = ("--no-defaults", "-S", address, "-uroot")
        self._wait_for("mariadbd", "mariadb-admin", *client, "ping")
        self.command("mariadb", *client, "-e", STATEMENTS)


def slurm_conf(slurm: PrivateSlurm) -> str:
    """Return ``slurm.conf``.

    Partitions: ``debug``, the default; ``short``, of at most two minutes; ``high``, which
    preempts jobs of the others.
    """
    folder = slurm.folder
    if slurm.accounting:
        # Without AccountingStoragePass, sacctmgr and slurmctld ask the munge of the system.
        accounting = f"""AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurm.ports[1]}
AccountingStoragePass={slurm.munge_socket}
AccountingStorageEnforce=associations
"""
    else:
        accounting = "AccountingStorageType=accounting_storage/none\n"
    if slurm.memory == "cgroup":
        enforcement = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n"
    else:
        enforcement = (
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "JobAcctGatherParams=OverMemoryKill\n"
        )
    gres = f" Gres=gpu:{slurm.gpus}" if slurm.gpus else ""
    nodes = "".join(
        f"NodeName={name} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={port} "
        f"CPUs={slurm.node_cpus} RealMemory={slurm.node_memory_mb}{gres} State=UNKNOWN\n"
        for name, port in zip(slurm.node_names, slurm.ports[3:], strict=True)
    )
    # cred_expire: a requeued job starts again after seconds instead of two minutes.
    return f"""ClusterName=lab
SlurmctldHost={_host()}(127.0.0.1)
SlurmctldPort={slurm.ports[0]}
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={slurm.munge_socket},cred_expire={5 * slurm.clock}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MpiDefault=none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
SlurmctldDebug=info
SlurmdDebug=info
SwitchType=switch/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
EnforcePartLimits=ALL
DefMemPerCPU=200
{enforcement}JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task={slurm.clock}
{accounting}JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.txt
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=2,batch_sched_delay=0,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=3
OverTimeLimit=0
MinJobAge=3600
InactiveLimit=0
SlurmctldTimeout={30 * slurm.clock}
SlurmdTimeout={15 * slurm.clock}
MessageTimeout={min(10 * slurm.clock, 100)}
TCPTimeout={2 * slurm.clock}
BatchStartTimeout={10 * slurm.clock}
UnkillableStepTimeout={60 * slurm.clock}
MaxArraySize=1001
MaxJobCount=20000
MaxNodeCount={slurm.nodes + 1}
PropagateResourceLimits=NONE
{"GresTypes=gpu" if slurm.gpus else ""}
{nodes}PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=short Nodes=ALL MaxTime=2 State=UP PriorityTier=1
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def slurmdbd_conf(slurm: PrivateSlurm) -> str:
    """Return ``slurmdbd.conf``; empty without accounting."""
    if not slurm.accounting:
        return ""
    return f"""AuthType=auth/munge
AuthInfo=socket={slurm.munge_socket}
DbdHost={_host()}
DbdAddr=127.0.0.1
DbdPort={slurm.ports[1]}
SlurmUser={getpass.getuser()}
MessageTimeout={min(10 * slurm.clock, 100)}
PidFile={slurm.folder}/slurmdbd.pid
LogFile={slurm.folder}/log/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={slurm.ports[2]}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
CommunicationParameters=NoInAddrAny
"""


def cgroup_conf(slurm: PrivateSlurm) -> str:
    """Return ``cgroup.conf``; empty where Slurm's sampling enforces memory."""
    if slurm.memory != "cgroup":
        return ""
    version_1 = Path("/sys/fs/cgroup/memory").is_dir()
    plugin = "cgroup/v1" if version_1 else "autodetect\nIgnoreSystemd=yes"
    return (
        f"CgroupPlugin={plugin}\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
        "ConstrainRAMSpace=yes\nConstrainCores=no\nConstrainSwapSpace=no\n"
    )


def gres_conf(slurm: PrivateSlurm) -> str:
    """Return ``gres.conf``, of GPUs that are other devices; empty without GPUs."""
    files = ",".join(STAND_INS[: slurm.gpus])  # Slurm leaves out a GPU without a device
    return f"Name=gpu File={files}\n" if slurm.gpus else ""


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
