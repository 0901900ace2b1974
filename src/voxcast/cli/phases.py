"""``voxcast phases``: time and memory by phase, of runs on record and of parallel programs."""

from __future__ import annotations

from voxcast.cli.phases_chain import chain
from voxcast.cli.phases_predict import predict
from voxcast.cli.phases_recommend import recommend, transfer
from voxcast.cli.phases_record import record
from voxcast.cli.phases_show import show
from voxcast.cli.phases_signature import signature

ACTIONS = {
    "chain": chain,
    "record": record,
    "show": show,
    "signature": signature,
    "predict": predict,
    "transfer": transfer,
    "recommend": recommend,
}
