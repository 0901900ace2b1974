import os

from voxcast.measure.gpu import gpu_models
from voxcast.measure.host import cpu_model, host_facts, host_id


def test_models_are_read_from_recorded_texts(tmp_path):
    for bus, model in (("0000:41:00.0", "NVIDIA H200"), ("0000:01:00.0", "NVIDIA A100-SXM4-40GB")):
        (tmp_path / bus).mkdir()
        text = f"Model: \t\t {model}\nIRQ:   \t\t 61\n"
        (tmp_path / bus / "information").write_text(text)
    assert gpu_models(tmp_path) == ("NVIDIA A100-SXM4-40GB", "NVIDIA H200")
    assert gpu_models(tmp_path / "none") == ()
    assert cpu_model("CPU implementer\t: 0x41\n") == os.uname().machine


def test_the_host_id_depends_on_its_three_parts_and_reveals_none():
    names = [
        host_id("node1", "0123", "CPU A"),
        host_id("node2", "0123", "CPU A"),
        host_id("node1", "0123", "CPU B"),
        host_id("node1", "", "CPU A"),
    ]
    assert len(set(names)) == 4
    assert all(len(name) == 8 and int(name, 16) >= 0 for name in names)
    assert host_facts().host_id == host_facts().host_id != ""
