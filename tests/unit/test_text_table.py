from voxcast.text_table import text_table


def test_columns_never_touch() -> None:
    rows = [("job", "memory"), ("a-name-much-longer-than-the-head", "173 MB"), ("b", "0.00012 GB")]
    lines = text_table(rows, "<>", indent="  ").splitlines()
    assert lines[1] == "  a-name-much-longer-than-the-head      173 MB"
    assert {len(line) for line in lines} == {len(lines[0])}
