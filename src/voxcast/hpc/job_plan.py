"""Jobs, and cores for each, such that a set of tasks is done soonest on given nodes.

Cores are allotted for several makespans from the lower bound up, short tasks are packed into jobs
of several lengths, and the jobs are placed longest first, or those with most cores first. Of all
these plans the one of the smallest makespan is taken; of those that are as good, the one with the
fewest core-hours. One core a task, and whole nodes, are among them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.list_schedule import list_schedule
from voxcast.errors import ConfigError
from voxcast.hpc.packing import alone, packed
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from voxcast.allocation.list_schedule import Machine
    from voxcast.allocation.moldable import MoldableTasks
    from voxcast.hpc.packing import Jobs

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]

JOB_START_S = 5.0  # for which a job holds its cores before its first task begins
STRETCHES = (
    0.6,
    0.8,
    1.0,
    1.03,
    1.1,
    1.2,
    1.4,
    1.8,
)  # of the lower bound, for which cores are allotted
PACK_SHARES = (0.0, 1 / 50, 1 / 20, 1 / 8)  # of the lower bound, that a packed job takes
LONGEST_PACK_S = 4 * 3600.0
AS_GOOD = 1.005  # times the smallest makespan
MOST_DRAWN = 4000  # tasks of all draws by which plans are compared
DRAWS, CHANCE = 100, 0.9  # of the interval
NODE_STEP = 1.05


@dataclass(frozen=True)
class JobPlan:
    """Jobs in the order in which they are to start.

    Attributes
    ----------
    options : ndarray of int, shape (tasks,)
        Option of each task.
    task_s : ndarray, shape (tasks,)
        Predicted, in seconds.
    order : ndarray of int, shape (jobs,)
    """

    machine: Machine
    options: Ints
    task_s: Floats
    jobs: Jobs
    order: Ints

    def makespan_s(self, task_s: Floats | None = None) -> float:
        """Return the makespan if tasks take as predicted, or as ``task_s``."""
        job_s = self.jobs.runtime_s(self.task_s if task_s is None else task_s)
        return list_schedule(job_s, self.jobs.cores, self.order, self.machine).makespan_s

    def core_h(self, task_s: Floats | None = None) -> float:
        """Return the core-hours that the jobs hold."""
        job_s = self.jobs.runtime_s(self.task_s if task_s is None else task_s)
        return float((self.jobs.cores * (job_s + self.machine.job_start_s)).sum() / 3600)

    def interval_s(self, spread: Floats, seed: int = 0) -> tuple[float, float]:
        """Return the interval of the makespan at `CHANCE`, on the safe side.

        Errors of predictions may be shared by all tasks (the machine is slower than known), or be
        independent: a shared one moves the sum, independent ones the longest. It is not known how
        much is shared, so the interval covers both extremes.

        Parameters
        ----------
        spread : ndarray, shape (tasks,)
            Standard deviation of the logarithm of each task's time.
        seed : int
            Of the draws of independent errors.
        """
        from scipy.stats import norm

        tail = float(norm.ppf((1 + CHANCE) / 2))
        shared = [self.makespan_s(self.task_s * np.exp(z * spread)) for z in (-tail, tail)]
        rng = np.random.default_rng(seed)
        draws = (self.task_s * np.exp(spread * rng.standard_normal(len(spread)))
                 for _ in range(DRAWS))  # fmt: skip
        quantiles = (1 - CHANCE) / 2, (1 + CHANCE) / 2
        independent = np.quantile([self.makespan_s(times) for times in draws], quantiles)
        return min(shared[0], float(independent[0])), max(shared[1], float(independent[1]))


def plan_jobs(
    tasks: MoldableTasks,
    machine: Machine,
    kinds: Sequence[Hashable],
    *,
    spread: Floats | None = None,
    most_core_h: float = math.inf,
    whole_nodes: bool = False,
) -> JobPlan:
    """Return the plan of the smallest expected makespan.

    A plan in which all tasks just fit ends late as soon as one of them takes longer than
    predicted. So the plans that are best by prediction, one for each allotment, are compared over
    draws of what tasks may take; of many tasks few draws suffice, as their errors average out.

    Parameters
    ----------
    kinds : sequence, shape (tasks,)
        What tasks of a packed job must have in common; see `packed`.
    spread : ndarray, shape (tasks,), optional
        Standard deviation of the logarithm of each task's time; by default predictions are exact.
    most_core_h : float
        Core-hours that the jobs may hold.
    whole_nodes : bool
        Every job takes a node, with tasks side by side.

    Raises
    ------
    ConfigError
        If even one core a task needs more core-hours.
    """
    plans = list(_plans(tasks, machine, kinds, whole_nodes=whole_nodes))
    core_h = [plan.core_h() for plan in plans]
    if min(core_h) > most_core_h:
        problem = f"the tasks need {min(core_h):.3g} core-hours, and {most_core_h:.3g} are allowed"
        raise ConfigError(problem, "--core-hours", "allow more, or leave out images")
    allowed = [n for n, hours in enumerate(core_h) if hours <= most_core_h]
    makespans = {n: plans[n].makespan_s() for n in allowed}
    if spread is not None and len(tasks):
        best: dict[bytes, int] = {}
        for n in sorted(allowed, key=makespans.__getitem__):
            best.setdefault(plans[n].options.tobytes(), n)
        draws = 1 + MOST_DRAWN // len(tasks)
        makespans = {n: _expected_s(plans[n], spread, min(draws, 8)) for n in best.values()}
    limit_s = AS_GOOD * min(makespans.values())
    as_good = (n for n, makespan_s in makespans.items() if makespan_s <= limit_s)
    return plans[min(as_good, key=core_h.__getitem__)]


def _expected_s(plan: JobPlan, spread: Floats, draws: int) -> float:
    """Return the mean makespan over draws, the same for every plan."""
    rng = np.random.default_rng(1)
    errors = (np.exp(spread * rng.standard_normal(len(spread))) for _ in range(draws))
    return float(np.mean([plan.makespan_s(plan.task_s * error) for error in errors]))


def _plans(
    tasks: MoldableTasks, machine: Machine, kinds: Sequence[Hashable], *, whole_nodes: bool
) -> Iterator[JobPlan]:
    bound_s = tasks.makespan_bound(machine.cores)
    allotments = [tasks.allotment(stretch * bound_s) for stretch in STRETCHES]
    allotments += [tasks.fewest_cores(), tasks.allotment(0.0)]
    different = {options.tobytes(): options for options in allotments}
    for options in different.values():
        task_s, cores = tasks.chosen(options)
        # Tasks of a job get the same number of cores, which decides their option.
        of_option = list(zip(kinds, options.tolist(), strict=True))
        for share in PACK_SHARES:
            target_s = min(share * bound_s, LONGEST_PACK_S)
            if whole_nodes:
                jobs = packed(task_s, cores, of_option, target_s, machine.cores_per_node)
            else:
                jobs = packed(task_s, cores, of_option, target_s) if share else alone(cores)
            job_s = jobs.runtime_s(task_s)
            for order in (np.argsort(-job_s, kind="stable"), np.lexsort((-job_s, -jobs.cores))):
                yield JobPlan(machine, options, task_s, jobs, order)


def one_core_a_job(tasks: MoldableTasks, machine: Machine) -> JobPlan:
    """Return the plan in which each task is a job with the fewest cores, longest first."""
    options = tasks.fewest_cores()
    task_s, cores = tasks.chosen(options)
    return JobPlan(machine, options, task_s, alone(cores), np.argsort(-task_s, kind="stable"))


def whole_node_a_job(tasks: MoldableTasks, machine: Machine) -> JobPlan:
    """Return the plan in which each task has a node and uses the cores that it can, longest first.

    It is charged for all cores of the node.
    """
    options = tasks.allotment(0.0)
    task_s, _ = tasks.chosen(options)
    jobs = alone(np.full(len(tasks), machine.cores_per_node))
    return JobPlan(machine, options, task_s, jobs, np.argsort(-task_s, kind="stable"))


def nodes_for_deadline(
    tasks: MoldableTasks,
    deadline_s: float,
    cores_per_node: int,
    kinds: Sequence[Hashable],
    spread: Floats,
    *,
    most_core_h: float = math.inf,
    whole_nodes: bool = False,
) -> JobPlan:
    """Return a plan on few nodes whose makespan is within a deadline, at the upper bound.

    The search begins at the nodes for which the lower bound is within it, and adds a twentieth
    at a time.

    Raises
    ------
    ConfigError
        If no number of nodes suffices.
    """
    from voxcast.allocation.list_schedule import Machine

    nodes = 1
    while tasks.makespan_bound(nodes * cores_per_node) > deadline_s and nodes < len(tasks):
        nodes = max(nodes + 1, int(nodes * NODE_STEP))
    while True:
        machine = Machine(nodes, cores_per_node, JOB_START_S)
        plan = plan_jobs(
            tasks, machine, kinds, spread=spread, most_core_h=most_core_h, whole_nodes=whole_nodes
        )  # fmt: skip
        upper_s = plan.interval_s(spread)[1]
        if upper_s <= deadline_s:
            return plan
        if nodes >= len(tasks):
            problem = f"even {nodes} nodes may need {format_seconds(upper_s)}"
            raise ConfigError(problem, "--deadline", "allow more time, or more --cores-per-node")
        nodes = min(max(nodes + 1, int(nodes * NODE_STEP)), len(tasks))
