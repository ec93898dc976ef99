"""Tells several observers of the loop the same things, in their order."""

from __future__ import annotations

from clearway.estimates.learning import CheckpointRecord, RestartRecord
from clearway.model.explanation import Explanation
from clearway.model.operations import Operation, Preemption
from clearway.model.report import CycleReport
from clearway.model.rolling import RollingDrain
from clearway.service.loop import CycleObserver


class Observers:
    """Implements ``loop.CycleObserver``; usually over ``Metrics`` and ``LogObserver``."""

    def __init__(self, *observers: CycleObserver) -> None:
        self._observers = observers

    def cycle(self, report: CycleReport) -> None:
        for observer in self._observers:
            observer.cycle(report)

    def cycle_failed(self, error: BaseException) -> None:
        for observer in self._observers:
            observer.cycle_failed(error)

    def planned(self, eviction: Operation, seconds: float) -> None:
        for observer in self._observers:
            observer.planned(eviction, seconds)

    def explained(self, eviction: Operation, explanation: Explanation) -> None:
        for observer in self._observers:
            observer.explained(eviction, explanation)

    def checkpointed(self, record: CheckpointRecord) -> None:
        for observer in self._observers:
            observer.checkpointed(record)

    def restarted(self, record: RestartRecord) -> None:
        for observer in self._observers:
            observer.restarted(record)

    def rolled(self, before: RollingDrain, after: RollingDrain) -> None:
        for observer in self._observers:
            observer.rolled(before, after)

    def step(self, kind: str, result: str) -> None:
        for observer in self._observers:
            observer.step(kind, result)

    def left(self, preemption: Preemption, partition: str) -> None:
        for observer in self._observers:
            observer.left(preemption, partition)

    def finished(self, eviction: Operation) -> None:
        for observer in self._observers:
            observer.finished(eviction)
