from voxcast.apps.phase_log import read_phases
from voxcast.apps.rank_phases import RankPhases, log_phases


def test_phases_are_logged_with_the_cpu_time_of_all_processes(capsys):
    phases = RankPhases()
    with phases.phase("work"):
        sum(range(200_000))
    assert len(phases.cpu_s) == 2
    assert phases.cpu_s[1] > 0
    log_phases(phases.times, [3.0 * cpu_s for cpu_s in phases.cpu_s])
    logged = read_phases(capsys.readouterr().out, 0.0)
    assert [phase.name for phase in logged] == ["start", "work"]
    assert [phase.cpu_s for phase in logged] == [3.0 * cpu_s for cpu_s in phases.cpu_s]
    assert logged[1].start_s == phases.times[1].start
    assert logged[0].end_s <= logged[1].start_s < logged[1].end_s
