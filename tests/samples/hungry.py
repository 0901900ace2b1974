"""Takes the options of a built-in application, holds as much memory as is told, and writes that.

MIB is a JSON object of memory by the name of the file. LIMIT_MIB limits the process itself, as a
cluster would.
"""

import argparse
import json
import os
import resource
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--image", type=Path, required=True)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()
if limit_mib := os.environ.get("LIMIT_MIB"):
    limit_bytes = int(limit_mib) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
sizes = json.loads(os.environ["MIB"])
held = bytearray(sizes[args.image.name] * 2**20)
args.out.mkdir(parents=True)
(args.out / "held.json").write_text(json.dumps({"mib": len(held) >> 20, "threads": args.threads}))
