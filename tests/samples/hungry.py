"""Takes the options of a built-in application, holds as much memory as is told, and writes that.

MIB is the memory of images that are not named, or a JSON object by the name of the file.
"""

import argparse
import json
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--image", type=Path, required=True)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()
sizes = json.loads(os.environ["MIB"])
held = bytearray(sizes[args.image.name] * 2**20)
args.out.mkdir(parents=True)
(args.out / "held.json").write_text(json.dumps({"mib": len(held) >> 20, "threads": args.threads}))
