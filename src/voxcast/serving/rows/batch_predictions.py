"""Predictions for the rows of a file of any length: read, predicted and written in batches.

A row that the model refuses has no prediction, and the reason in a column ``error``; all other
rows are predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, RequestError, TableError, one_line
from voxcast.serving.rows.refusals import reason_for_row
from voxcast.serving.rows.typed_rows import typed_row
from voxcast.serving.signature import OUTPUT_TYPES, REQUIRED_COLUMNS, VOLUME, input_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from voxcast.serving.champion import Predict
    from voxcast.serving.rows.row_files import RowFile

    Row = dict[str, Any]

ROWS, ROWS_WITH_VOLUME = 1000, 50  # at a time
ERROR = "error"


@dataclass(frozen=True)
class BatchPredictions:
    """The predictions of a file.

    Attributes
    ----------
    predict : callable
        See `voxcast.serving.champion.Predict`.
    source : RowFile
        Rows with the columns of `voxcast.serving.signature`. Columns that the model does not have,
        such as the name of a subject, are copied.
    quantile, explain
        See `voxcast.serving.prediction_service.PredictionService.predict`.
    defaults : mapping of str to str
        Cells of rows in which they are missing, such as ``app``.
    lab : collection of str
        Characteristics of laboratories that the model has.
    """

    predict: Predict
    source: RowFile
    quantile: float
    explain: bool
    defaults: Mapping[str, str]
    lab: Collection[str] = ()

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns of `batches`.

        Raises
        ------
        TableError
            If the file lacks a column that is required.
        """
        import pyarrow as pa

        if missing := sorted(REQUIRED_COLUMNS - set(self.source.schema.names)):
            names = ", ".join(missing)
            then = "see docs/predicting.md; for a model of `voxcast fit` give --model"
            raise TableError(f"has no column {names}", self.source.path, then)
        kinds = {
            "string": pa.string(), "double": pa.float64(), "long": pa.int64(),
            "boolean": pa.bool_(),
        }  # fmt: skip
        predicted = [(name, kinds[kind]) for name, kind in OUTPUT_TYPES.items()]
        copied = [self.source.schema.field(name) for name in self._copied]
        return pa.schema([*copied, *predicted, (ERROR, pa.string())])

    @property
    def _types(self) -> dict[str, str]:
        return input_types(self.lab)

    @property
    def _copied(self) -> list[str]:
        """Columns of the file that neither the model nor an answer has."""
        taken = {*self._types, *OUTPUT_TYPES, ERROR}
        return [name for name in self.source.schema.names if name not in taken]

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows of the answer in the order of the file, some at a time.

        Raises
        ------
        TableError
            If the file is damaged.
        ModelError
            If the model cannot be read, or a server does not answer.
        """
        size = ROWS_WITH_VOLUME if VOLUME in self.source.schema.names else ROWS
        for batch in self.source.batches(size):
            cells = batch.to_pylist()
            answers = self._answers([{**row, **self._open_cells(row)} for row in cells])
            yield [
                {name: row[name] for name in self._copied} | answer
                for row, answer in zip(cells, answers, strict=True)
            ]

    def _open_cells(self, row: Row) -> dict[str, str]:
        return {name: text for name, text in self.defaults.items() if row.get(name) is None}

    def _answers(self, rows: Sequence[Row]) -> list[Row]:
        """Return an answer or an error for each row."""
        answers: list[Row] = [{} for _ in rows]
        # MLflow's protocol has no missing bytes: rows with a volume are a request of their own.
        typed: dict[bool, dict[int, Row]] = {False: {}, True: {}}
        for n, row in enumerate(rows):
            try:
                cells = typed_row(row, self._types)
            except ModelError as error:
                answers[n] = {ERROR: one_line(error)}
            else:
                typed[VOLUME in cells][n] = cells
        for request in typed.values():
            predicted = self._predicted(list(request.values()))
            for n, answer in zip(request, predicted, strict=True):
                answers[n] = answer
        return answers

    def _predicted(self, rows: list[Row]) -> list[Row]:
        """Return an answer or an error for each row; halves are asked again after a refusal."""
        if not rows:
            return []
        try:
            answers = self.predict(rows, self.quantile, explain=self.explain)
            return [{**answer, ERROR: None} for answer in answers]
        except RequestError as error:
            if len(rows) == 1:
                return [{ERROR: reason_for_row(error)}]
        half = len(rows) // 2
        return self._predicted(rows[:half]) + self._predicted(rows[half:])
