"""Pictures of the page for its documentation: wide and light, and on a phone in the dark.

They show the project of the tests of the page, whose runs are planted, and a head that is named.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image

PROJECT = Path(__file__).parents[1]
IMAGES = PROJECT / "docs/images"
WIDE, PHONE = (1200, 1540), (390, 844)
COLOURS = 128  # enough for the page, at a third of the bytes
SCROLLED_MS = 1000


def _save(screenshot: bytes, path: Path) -> None:
    with Image.open(io.BytesIO(screenshot)) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main(argv: list[str] | None = None) -> int:
    """Serve the project of the tests, open the page in Chromium, and write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=Path, help="a head, such as one of those of the demo")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder of the pictures")
    args = parser.parse_args(argv)
    image, out = args.image.resolve(), args.out.resolve()
    sys.path[:0] = [str(PROJECT / "tests/support")]
    from playwright.sync_api import sync_playwright

    from page_visits import (  # type: ignore[import-not-found]
        browser,
        served,
        visit,
        write_project,
    )

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # MLflow writes its files here
        write_project(Path(folder))
        copy = Path(shutil.copy2(image, Path(folder, "scans")))
        with (
            served(Path(folder)) as url,
            sync_playwright() as playwright,
            browser(playwright) as chromium,
        ):
            with visit(chromium, url, size=WIDE) as wide:
                wide.read_image(copy)
                _save(wide.page.screenshot(), out / "page-wide.png")
            with visit(chromium, url, size=PHONE, scheme="dark") as phone:
                phone.read_image(copy)
                phone.page.eval_on_selector("#recommendation", "(card) => card.scrollIntoView()")
                phone.page.wait_for_timeout(SCROLLED_MS)
                _save(phone.page.screenshot(), out / "page-phone.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
