from voxcast.measure.trace import LogClock


def test_a_line_is_written_when_the_file_holds_all_of_it(tmp_path):
    path = tmp_path / "app.log"
    clock = LogClock(path)
    clock.read(0.0)  # the file does not exist yet
    path.write_bytes(b"one\ntw")
    clock.read(1.0)
    clock.read(2.0)
    path.write_bytes("one\ntwo\r\nthr\u00e9e\n".encode())
    clock.read(3.0)
    path.write_bytes(path.read_bytes() + b"\xff after the last reading")
    assert clock.lines() == (
        ["one", "two", "thr\u00e9e", "\ufffd after the last reading"], [1.0, 3.0, 3.0, 3.0],
    )  # fmt: skip
