"""Tables of docs/uploads.md: damaged images, and the time of an upload."""

from __future__ import annotations

from table_text import markdown, results

REFUSALS = ("400", "413", "422")


def upload_fuzz() -> str:
    """Return the outcomes of damaged images."""
    fuzz = results("service/upload_fuzz.json")
    rows = []
    names = {"reader": "a reader alone", "service": "a service, over HTTP"}
    for part, name in ((fuzz[key], name) for key, name in names.items()):
        counts = part["outcomes"]
        rows.append([
            name, f"{part['cases']:,}",
            f"{counts.get('read', 0) + counts.get('200', 0):,}",
            f"{counts.get('refused', 0) + sum(counts.get(c, 0) for c in REFUSALS):,}",
            str(sum(counts.get(c, 0) for c in ("ended", "no answer", "5xx"))),
            str(counts.get("unforeseen", 0)),
            f"{part['slowest_s']:.1f} s", f"{part['peak_above_idle_bytes'] / 1e6:.0f} MB",
        ])  # fmt: skip
    head = ["asked", "damaged images", "read", "refused", "ended, or 5xx", "not foreseen",
            "slowest", "memory above idle"]  # fmt: skip
    return markdown(head, rows)


def upload_times() -> str:
    """Return the time of an upload against reading the same image."""
    of = results("bench/upload.json")
    rows = [["reading it, without a service", f"{of['read_s']:.2f} s", "1", ""]]
    cells = (
        f"{of['images_s']:.2f} s",
        f"{of['images_over_read']:.2f}",
        f"{of['bound_over_read']}",
    )
    rows.append(["`POST /images`", *cells])
    size = f"{of['file_bytes'] / 1e6:.1f} MB"
    return markdown([f"1 mm, {size}", "median", "over reading", "allowed"], rows)


TABLES = (upload_fuzz, upload_times)
