"""The configuration files of a private Slurm, see `private_slurm`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CPUS = 4  # of a virtual node, unless told otherwise
STAND_INS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")  # for GPUs


@dataclass(frozen=True)
class Layout:
    """Where the daemons of an instance are, and what its nodes claim to be.

    Attributes
    ----------
    ports : tuple of int
        Of slurmctld, slurmdbd, the database, and one for each node.
    clock : int
        How many times faster than time its clock runs; patience is as long in real time.
    """

    folder: Path
    host: str
    user: str
    ports: tuple[int, ...]
    nodes: int
    memory: str
    accounting: bool
    node_memory_mb: int
    gpus: int
    node_cpus: int
    clock: int = 1

    @property
    def munge_socket(self) -> Path:
        """Socket of munged, apart from its key."""
        return self.folder / "socket" / "munge"

    @property
    def database_port(self) -> int:
        """Port of MariaDB."""
        return self.ports[2]

    @property
    def node_names(self) -> list[str]:
        """Names of the nodes; control groups are named by them, so they differ by instance."""
        return [f"n{n}p{self.ports[0]}" for n in range(1, self.nodes + 1)]


def slurm_conf(layout: Layout) -> str:
    """Return ``slurm.conf``.

    Partitions: ``debug``, the default; ``short``, of at most two minutes; ``high``, which
    preempts jobs of the others.
    """
    folder = layout.folder
    if layout.accounting:
        # Without AccountingStoragePass, sacctmgr and slurmctld ask the munge of the system.
        accounting = f"""AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={layout.ports[1]}
AccountingStoragePass={layout.munge_socket}
AccountingStorageEnforce=associations
"""
    else:
        accounting = "AccountingStorageType=accounting_storage/none\n"
    if layout.memory == "cgroup":
        enforcement = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n"
    else:
        enforcement = (
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "JobAcctGatherParams=OverMemoryKill\n"
        )
    gres = f" Gres=gpu:{layout.gpus}" if layout.gpus else ""
    nodes = "".join(
        f"NodeName={name} NodeHostname={layout.host} NodeAddr=127.0.0.1 Port={port} "
        f"CPUs={layout.node_cpus} RealMemory={layout.node_memory_mb}{gres} State=UNKNOWN\n"
        for name, port in zip(layout.node_names, layout.ports[3:], strict=True)
    )
    # cred_expire: a requeued job starts again after seconds instead of two minutes.
    return f"""ClusterName=lab
SlurmctldHost={layout.host}(127.0.0.1)
SlurmctldPort={layout.ports[0]}
SlurmUser={layout.user}
SlurmdUser={layout.user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={layout.munge_socket},cred_expire={5 * layout.clock}
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
JobAcctGatherFrequency=task={layout.clock}
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
SlurmctldTimeout={30 * layout.clock}
SlurmdTimeout={15 * layout.clock}
MessageTimeout={min(10 * layout.clock, 100)}
TCPTimeout={2 * layout.clock}
BatchStartTimeout={10 * layout.clock}
UnkillableStepTimeout={60 * layout.clock}
MaxArraySize=1001
MaxJobCount=20000
MaxNodeCount={layout.nodes + 1}
PropagateResourceLimits=NONE
{"GresTypes=gpu" if layout.gpus else ""}
{nodes}PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=short Nodes=ALL MaxTime=2 State=UP PriorityTier=1
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def slurmdbd_conf(layout: Layout) -> str:
    """Return ``slurmdbd.conf``; empty without accounting."""
    if not layout.accounting:
        return ""
    return f"""AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
DbdHost={layout.host}
DbdAddr=127.0.0.1
DbdPort={layout.ports[1]}
SlurmUser={layout.user}
MessageTimeout={min(10 * layout.clock, 100)}
PidFile={layout.folder}/slurmdbd.pid
LogFile={layout.folder}/log/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={layout.database_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
CommunicationParameters=NoInAddrAny
"""


def cgroup_conf(layout: Layout) -> str:
    """Return ``cgroup.conf``; empty where Slurm's sampling enforces memory."""
    if layout.memory != "cgroup":
        return ""
    version_1 = Path("/sys/fs/cgroup/memory").is_dir()
    plugin = "cgroup/v1" if version_1 else "autodetect\nIgnoreSystemd=yes"
    return (
        f"CgroupPlugin={plugin}\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
        "ConstrainRAMSpace=yes\nConstrainCores=no\nConstrainSwapSpace=no\n"
    )


def gres_conf(layout: Layout) -> str:
    """Return ``gres.conf``, of GPUs that are other devices; empty without GPUs."""
    files = ",".join(STAND_INS[: layout.gpus])  # Slurm leaves out a GPU without a device
    return f"Name=gpu File={files}\n" if layout.gpus else ""
