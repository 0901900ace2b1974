"""Templates against short logs, written after the formats that the sources of each document."""

from pathlib import Path

import pytest

from voxcast.apps.new import load_template, template_names
from voxcast.apps.phase_log import phases_from_log
from voxcast.config.load import app_of
from voxcast.errors import ConfigError

CONF_APP = Path(__file__).parents[3] / "conf/app"
FSTIME = "@#@FSTIME  2022:04:29:05:37:49 {} N 4 e {} S 1.5 U 20.1 P 99% M 300000 F 0 R 1 W 0"
NODE = '240501-12:00:{:02d},123 nipype.workflow INFO:\n\t [Node] Finished "{}", elapsed time {}s.'
DONE = " Done with {}:  {}h {}m {}s"
LOGS = {
    "recon-all": (
        [
            "#@# Nu Intensity Correction Fri Apr 29 05:30:00 UTC 2022",
            FSTIME.format("mri_normalize", "120.50"),
            FSTIME.format("mri_watershed", "30.00"),
            FSTIME.format("mri_ca_register", "3600.25"),
            FSTIME.format("mri_ca_label", "1800.00"),
            FSTIME.format("mris_inflate", "20.00"),
            FSTIME.format("mris_sphere", "600.00"),
            FSTIME.format("mris_register", "900.00"),
            FSTIME.format("mris_place_surface", "300.00"),
        ],
        [120.5, 30.0, 3600.25, 1800.0, 20.0, 600.0, 900.0, 300.0],
    ),
    "fastsurfer": (
        [
            "Log file for segmentation FastSurferCNN/run_prediction.py",
            "python3.10 /fastsurfer/FastSurferCNN/run_prediction.py --t1 /data/a.nii.gz --sid s",
            "[INFO: run_prediction.py:  10]: done",
            "================== Creating orig and rawavg from input =========================",
            "finished",
        ],
        [2.0, 6.0],
    ),
    "fmriprep": (
        [
            NODE.format(1, "_inu_n40", "70.716843"),
            NODE.format(2, "recon_report", "19.35304"),
            NODE.format(3, "registration", "1116.977937"),
            NODE.format(4, "autorecon1", "3000.5"),
            NODE.format(5, "autorecon2_vol", "60.25"),
            NODE.format(6, "_autorecon_surfs0", "5000.0"),
            NODE.format(7, "_autorecon_surfs1", "5100.0"),
        ],
        [70.716843, 1116.977937, 3000.5, 60.25, 5000.0, 5100.0],
    ),
    "synthstrip": (
        [
            "Configuring model on the CPU",
            "Running SynthStrip model version 1",
            "Input image read from: /data/a.nii.gz",
            "Processing frame (of 1): 1 done",
            "Masked image saved to: /out/stripped.nii.gz",
            "Binary brain mask saved to: /out/mask.nii.gz",
        ],
        [2.0, 2.0, 1.0],
    ),
    "hd-bet": (
        [
            "If you are using hd-bet, please cite the following papers:",
            "sending off prediction to background worker for resampling and export",
            "done with brain_bet.nii.gz",
        ],
        [1.0, 8.0],
    ),
    "ants-cortical-thickness": (
        [
            DONE.format("brain extraction", 0, 12, 3),
            DONE.format("brain registration", 1, 0, 59),
            DONE.format("brain segmentation", 0, 30, 0),
            DONE.format("cortical thickness estimation", 2, 1, 1),
        ],
        [723.0, 3659.0, 1800.0, 7261.0],
    ),
}


@pytest.mark.parametrize("name", template_names())
def test_phases_are_read_from_lines_of_the_documented_format(name):
    template = load_template(name)
    lines, durations_s = LOGS[name]
    written_s = [float(n) for n in range(len(lines))]
    phases = phases_from_log(lines, template.app["phase_patterns"], written_s, 9.0)
    assert [phase.duration_s for phase in phases] == pytest.approx(durations_s)
    assert list(dict.fromkeys(phase.name for phase in phases)) == template.app["phases"]


@pytest.mark.parametrize("name", template_names())
def test_a_template_is_a_valid_application_with_a_source(name):
    template = load_template(name)
    assert template.sources
    assert all(source.startswith("https://") for source in template.sources)
    values = {"version": "1", **template.values(in_container=False)}
    assert app_of(CONF_APP, "tool", values).argv
    if template.contained:
        contained = app_of(CONF_APP, "tool", values | template.values(in_container=True))
        assert contained.container
        assert contained.binds
    else:
        with pytest.raises(ConfigError, match="names no container"):
            template.values(in_container=True)
