"""Works of the process group "uncopy": collectives in flight."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

__all__ = ["UncopyWork", "Works"]


class UncopyWork(Work):
    """A collective in flight on the engine. finish puts results that were made elsewhere where the
    caller wants them, once, when the work is waited for or its future is made.
    """

    def __init__(self, job: Any, results: Any, finish: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._job = job
        self._results = results
        self._finish = finish
        self._future: Any = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until the collective is done. Raises RuntimeError for one that failed."""
        self._job.wait(timeout.total_seconds() if timeout else None)
        self._end()
        return True

    def _end(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def synchronize(self) -> None:
        """As wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, with or without an error."""
        return bool(self._job.is_done())

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self.is_completed() and self._job.error() is None

    def exception(self) -> Exception | None:
        """The error that it ended with."""
        error: Exception | None = self._job.error()
        return error

    def result(self) -> Any:
        """The tensors that hold the result, after a wait."""
        return self._results

    def get_future(self) -> Any:
        """A future of `result`, completed when the collective is done."""
        if self._future is None:
            self._future = torch.futures.Future()
            self._job.on_done(self._complete)
        return self._future

    def _complete(self) -> None:
        error = self._job.error()
        if error is not None:
            self._future.set_exception(error)
            return
        self._end()
        self._future.set_result(self._results)


class Works(Work):
    """Several works as one."""

    def __init__(self, works: Sequence[Any], results: Any = None) -> None:
        super().__init__()
        self._works = list(works)
        self._results = results

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for all. Raises what the first that failed raises."""
        for work in self._works:
            work.wait(timeout) if timeout else work.wait()
        return True

    def synchronize(self) -> None:
        """As wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether all have ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all have ended without an error."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Exception | None:
        """The first error."""
        return next((e for e in (w.exception() for w in self._works) if e is not None), None)

    def result(self) -> Any:
        """The tensors that hold the results, after a wait."""
        if self._results is not None:
            return self._results
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> Any:
        """A future of `result`."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda _: self.result())
