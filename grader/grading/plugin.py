"""The pytest plugin: collects the checks in the manifest's order, gives them their fixtures, records their outcomes.

Only a check that ran to its end without any exception has PASSED. What is no Failure is a fault of the grader.
"""

import inspect
import io
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given.contracts import CONTRACTS

from grader.checking.functions import generator, is_check, title
from grader.checks.support.interventions import expect_own_answers, subject_of
from grader.failure import Failure
from grader.grading.stubs import Stub
from grader.judge.declared_types import misdeclared
from grader.manifest import Check, ManifestError
from grader.model import GRADED_MODEL
from grader.oracle.references import ReferenceFileError, ReferenceModel, load_model
from grader.report.results import Plan, Record
from grader.text import join_names
from grader.throughput.timing import TimedRuns, without_gpu
from grader.worker.client import Worker
from grader.worker.connection import Deadlines, WorkerFault

GPU_PATIENCE = 3.0
"""Deadlines are this much longer on a GPU, where nvcc needs seconds for each file."""

MODEL_PATIENCE = 4.0
"""And this much longer on another model than tiny, which is larger."""

MAX_TASKS = 4
"""Named in the message of a check that is not implemented; of more, the number."""

EMPTY_KERNELS = (
    "The answer does not come from your kernels: the check still passes when every kernel is replaced by an empty one."
)


class Workers:
    """The workers of the running stage, each started when a check first asks for it."""

    def __init__(self, engine: Path, deadlines: Deadlines) -> None:
        self._engine = engine
        self._deadlines = deadlines
        self._workers: dict[tuple[bool, bool], Worker] = {}

    def worker(self, *, emulated: bool, empty: bool = False) -> Worker:
        key = emulated, empty
        if key not in self._workers:
            self._workers[key] = Worker(self._engine, self._deadlines, emulated=emulated, empty=empty)
        return self._workers[key]

    def printed(self) -> str:
        return "\n".join(filter(None, (worker.printed() for worker in self._workers.values())))

    def take_remarks(self) -> list[str]:
        """What checks remarked of the submission since the last time."""
        return [remark for worker in self._workers.values() for remark in worker.take_remarks()]

    def end_check(self) -> None:
        for worker in self._workers.values():
            worker.release()

    def end(self) -> None:
        while self._workers:
            self._workers.popitem()[1].end()


class GradingPlugin:
    """One grading of the planned checks; `records` grow as checks end, `faults` are tracebacks of the grader's own."""

    def __init__(
        self,
        plan: Plan,
        engine: Path,
        stubs: Iterable[Stub],
        *,
        device: str,
        seed: int,
        repro: Callable[[str], str],
        listener: Any,
        list_only: bool = False,
        model: str = GRADED_MODEL,
    ) -> None:
        """`device` is "cpu" or "gpu", `model` what the fixture `tiny` gives.

        `listener` has check_started(id, title) and check_finished(record).
        """
        self.records: dict[str, Record] = {}
        self.titles: dict[str, str] = {}
        self.faults: list[str] = []
        self.interrupted = False
        self.error: ManifestError | None = None
        self.log = io.StringIO()
        self._stages = [stage for stage, _ in plan]
        self._checks = {check.id: check for _, checks in plan for check in checks}
        self._stubs = list(stubs)
        self._device = device
        self._seed = seed
        self._repro = repro
        self._listener = listener
        self._list_only = list_only
        self._model = model
        self._deadlines = Deadlines()
        self._engine = engine
        self._workers = Workers(engine, self._deadlines)
        self._running: Check | None = None
        self._started = 0.0
        self._problem: BaseException | None = None
        self._completed = False
        self._notes: dict[str, Any] = {}
        self._own_answers: dict[tuple[str, str], Failure | None] = {}
        """By stage and kind of answers, what was found when they were made to follow a change."""

    # Collection

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Send pytest's own texts to the log."""
        manager = config.pluginmanager
        manager.unregister(name="terminalreporter")
        manager.register(pytest.TerminalReporter(config, self.log), "terminalreporter")

    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str, obj: object) -> pytest.Function | None:
        if is_check(obj):
            function: pytest.Function = pytest.Function.from_parent(collector, name=name)
            return function
        return None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.faults.append(report.longreprtext)

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        """Keep the planned checks in order; the collected ids must be the manifest's."""
        found = {_check_id(item): item for item in items}
        self.titles = {check_id: title(item.obj) for check_id, item in found.items()}
        expected = [check.id for stage in self._stages for check in stage.checks]
        self.error = collection_error(expected, [_check_id(item) for item in items])
        items[:] = [found[check_id] for check_id in self._checks if check_id in found]
        if self.error or self._list_only:
            items.clear()
        for item in items:
            check = self._checks[_check_id(item)]
            runs = 3 if check.empty_repeat else 1
            item.add_marker(pytest.mark.timeout(2 * runs * self._seconds(check)))

    # Fixtures

    @pytest.fixture
    def worker(self) -> Worker:
        return self._workers.worker(emulated=self._device == "cpu")

    @pytest.fixture
    def emulator(self) -> Worker:
        return self._workers.worker(emulated=True)

    @pytest.fixture
    def rng(self, request: pytest.FixtureRequest) -> np.random.Generator:
        return generator(_check_id(request.node), self._seed)

    @pytest.fixture(scope="session")
    def tiny(self) -> ReferenceModel:
        try:
            return load_model(self._model)
        except ReferenceFileError as error:
            self.faults.append(f"{error}\n")
            raise Failure("NOT_RUN", f"{error}.") from None

    @pytest.fixture
    def shared_folder(self) -> Iterator[Path]:
        """An empty folder whose files the submission may read."""
        with tempfile.TemporaryDirectory(prefix="pagedlab-") as folder:
            yield Path(folder)

    @pytest.fixture(scope="session")
    def timed_runs(self) -> Iterator[TimedRuns]:
        with tempfile.TemporaryDirectory(prefix="pagedlab-") as folder:
            yield TimedRuns(Path(folder))

    @pytest.fixture
    def expect_band(self, request: pytest.FixtureRequest, timed_runs: TimedRuns) -> Callable[[str, float], None]:
        """On a GPU raises Failure unless a workload reaches this part of the rate of the kit's engine."""
        if self._device == "cpu":
            return lambda workload, band: without_gpu(self._notes)
        rng = generator(_check_id(request.node), self._seed)
        worker = self._workers.worker(emulated=False)
        return lambda workload, band: timed_runs.expect(worker, workload, band, self._notes, rng)

    # Running

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Function, nextitem: pytest.Item | None) -> bool | None:
        """Record at once a check that cannot run; any other runs by pytest's own protocol."""
        check = self._checks[_check_id(item)]
        self._listener.check_started(check.id, self.titles[check.id])
        self._started = time.monotonic()
        self._notes = {}
        untried = self._not_implemented(check) or self._skipped(check)
        if untried is not None:
            self._finish(check, untried)
            # pytest left the check file of the one before open for this one, which was next.
            item.session._setupstate.teardown_exact(nextitem)
            return True
        if self._running is None or self._running.stage != check.stage:
            self._workers.end()
        self._running = check
        self._problem, self._completed = None, False
        self._deadlines.start(self._seconds(check))
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        result = yield
        check = self._checks[_check_id(pyfuncitem)]
        if check.empty_repeat:
            self._repeat_with_empty_kernels(check, pyfuncitem)
            self._expect_own_answers(check)
        self._completed = True
        return result

    def pytest_runtest_makereport(self, item: pytest.Item, call: "pytest.CallInfo[None]") -> None:
        if call.excinfo is not None and self._problem is None:
            self._problem = call.excinfo.value

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        assert self._running is not None
        if remarks := self._workers.take_remarks():
            self._notes["remarks"] = remarks
        self._finish(self._running, self._outcome(self._running))
        if isinstance(self._problem, WorkerFault):
            pytest.exit("a worker cannot be started")

    def pytest_keyboard_interrupt(self, excinfo: "pytest.ExceptionInfo[BaseException]") -> None:
        self.interrupted = type(excinfo.value) is KeyboardInterrupt  # pytest has subclasses for ends of its own

    def pytest_sessionfinish(self) -> None:
        self._workers.end()

    def _seconds(self, check: Check) -> float:
        patience = GPU_PATIENCE if self._device == "gpu" else 1
        return check.deadline * patience * (MODEL_PATIENCE if self._model != GRADED_MODEL else 1)

    def _repeat_with_empty_kernels(self, check: Check, item: pytest.Function) -> None:
        """Raise Failure when the check passes although no kernel computes anything."""
        worker = self._workers.worker(emulated=True, empty=True)
        replaced = {"worker": worker, "emulator": worker, "rng": generator(check.id, self._seed)}
        arguments = {name: replaced.get(name, item.funcargs[name]) for name in inspect.signature(item.obj).parameters}
        self._deadlines.start(self._seconds(check))
        try:
            item.obj(**arguments)
        except Failure:
            return
        raise Failure("RUNTIME_ERROR", EMPTY_KERNELS)

    def _expect_own_answers(self, check: Check) -> None:
        """Raise Failure when answers of the kind that the check judges do not come from the submission's kernels.

        It is found out once a stage for all checks whose answers are of one kind.
        """
        subject = subject_of(check.id)
        if subject is None or self._model != GRADED_MODEL:
            return
        kind = check.stage, subject.__name__
        if kind not in self._own_answers:
            self._deadlines.start(self._seconds(check))
            rng, tiny = generator(check.id, self._seed + 1), load_model(self._model)
            try:
                expect_own_answers(check.stage, subject, self._workers.worker(emulated=True), rng, tiny)
                self._own_answers[kind] = None
            except Failure as failure:
                failure.evidence["case"] = self._deadlines.last_call
                self._own_answers[kind] = failure
        if (found := self._own_answers[kind]) is not None:
            raise Failure(found.verdict, found.message, dict(found.evidence))

    # Outcomes

    def _not_implemented(self, check: Check) -> Failure | None:
        """The failure of a check whose tasks are not all begun."""
        stubs = [stub for stub in self._stubs if stub.id in check.needs]
        if not stubs:
            return None
        stubs.sort(key=lambda stub: stub.id)
        tasks = sorted({stub.id for stub in stubs})
        if len(tasks) > MAX_TASKS:
            tasks[MAX_TASKS - 1 :] = [f"{len(tasks) - MAX_TASKS + 1} more"]
        evidence = {"stubs": [{"id": stub.id, "file": stub.file, "line": stub.line} for stub in stubs]}
        return Failure("NOT_IMPLEMENTED", f"To do: {join_names(tasks)}.", evidence)

    def _skipped(self, check: Check) -> Failure | None:
        """The failure of a check that calls a stage of which no check passed in this run."""
        for stage_id in sorted({need.partition(".")[0] for need in check.needs} - {check.stage}):
            verdicts = [record.verdict for record in self.records.values() if record.id.startswith(f"{stage_id}.")]
            if verdicts and "PASSED" not in verdicts:
                return Failure("SKIPPED", f"No check of stage {stage_id} passes, and this one calls it: begin there.")
        return None

    def _outcome(self, check: Check) -> Failure | None:
        """What became of a check that ran; None when it passed."""
        problem = self._problem
        if problem is None and self._completed:
            if printed := self._workers.printed():
                self._notes["log"] = printed
            self._workers.end_check()
            return None
        if isinstance(problem, Failure):
            problem.evidence.setdefault("case", self._deadlines.last_call)
            problem = self._with_types(problem)
            if printed := self._workers.printed():
                problem.evidence.setdefault("log", printed)
            self._workers.end_check()
            return problem
        self._workers.end()
        if isinstance(problem, pytest.fail.Exception) and "Timeout" in str(problem):
            return Failure("TIMEOUT", "The check took too long.", {"case": self._deadlines.last_call})
        text = "".join(traceback.format_exception(problem)) if problem else "it ended without an outcome\n"
        self.faults.append(f"check {check.id}: {text}")
        return Failure("NOT_RUN", "The grader itself failed in this check; the fault is not yours.")

    def _with_types(self, failure: Failure) -> Failure:
        """The failure, which begins with a wrong type among the parameters of the kernel that was called last."""
        contract = CONTRACTS.get(str(failure.evidence["case"]).partition("(")[0])
        if contract is None or failure.verdict == "COMPILE_ERROR":
            return failure
        try:
            source = (self._engine / "kernels" / contract.file).read_text("utf-8", "replace")
        except OSError:
            return failure
        wrong = misdeclared(source, contract)
        return Failure(failure.verdict, f"{wrong} {failure.message}", failure.evidence) if wrong else failure

    def _finish(self, check: Check, failure: Failure | None) -> None:
        record = Record(
            id=check.id,
            title=self.titles[check.id],
            points=check.points if failure is None else 0.0,
            max=check.points,
            verdict=failure.verdict if failure else "PASSED",
            message=failure.message if failure else "",
            seconds=time.monotonic() - self._started,
            repro=self._repro(check.id),
            evidence=self._notes | (failure.evidence if failure else {}),
        )
        self.records[check.id] = record
        self._listener.check_finished(record)


def _check_id(item: pytest.Item) -> str:
    return str(item.obj.check_id)  # type: ignore[attr-defined]


def collection_error(expected: Sequence[str], found: Sequence[str]) -> ManifestError | None:
    missing = [check_id for check_id in expected if check_id not in found]
    unknown = [check_id for check_id in found if check_id not in expected]
    twice = sorted({check_id for check_id in found if found.count(check_id) > 1})
    faults: Mapping[str, list[str]] = {
        "are in the manifest but not in grader/checks/": missing,
        "are in grader/checks/ but not in the manifest": unknown,
        "are in grader/checks/ more than once": twice,
    }
    texts = [f"{join_names(ids)} {fault}" for fault, ids in faults.items() if ids]
    return ManifestError(f"The manifest and the checks differ: {'; '.join(texts)}.") if texts else None
