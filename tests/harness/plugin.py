"""The pytest plugin: which tests run on how many ranks, and one verdict for all.

Every rank runs the same tests in the same order. After each phase of a test (setup,
call, teardown) the ranks compare outcomes: a test that failed on one rank fails on all,
with the ranks named and the traceback of the one that failed first. Only rank 0 prints.
"""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness import gpus
from harness.exchange import Exchange
from harness.guard import HangGuard
from harness.outcome import Outcome, join

NEED_ONE_HOST = ("shared", "direct")
MPI_TESTS = Path(__file__).parent.parent / "mpi"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ringfold")
    group.addoption("--full", action="store_true", help="also run tests marked full")
    group.addoption(
        "--hosts",
        default="",
        metavar="0,0,1",
        help="pretend that the ranks are on these hosts, which share no memory",
    )
    group.addoption(
        "--gpus",
        default="",
        metavar="0,0,1",
        help="pretend that the ranks are on these devices; see tests/gpu/double",
    )
    group.addoption(
        "--hang-timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="end the run when one test takes longer (default: 120)",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest settles on a folder for tmp_path
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ranks(*sizes): run only on so many ranks")
    config.addinivalue_line("markers", "full: run only with --full")
    config.addinivalue_line("markers", "gpus: only with --gpus")
    config.addinivalue_line("markers", "gpu_all: only where every rank has a GPU")
    config.addinivalue_line("markers", "gpu_each: only where each rank has its own GPU")
    config.addinivalue_line("markers", "one_host: not with --hosts")
    # A rank that fails alone leaves the others in a collective: they must give up well
    # before the hang guard does.
    os.environ.setdefault("RINGFOLD_TIMEOUT_S", "30")
    if config.option.basetemp is None:
        # Pytest's own choice has all processes of a user clean up in one folder, and
        # they get into each other's way.
        folder = f"{tempfile.gettempdir()}/ringfold-pytest-{os.getpid()}"
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.option.basetemp = folder
    if config.option.gpus:
        gpus.install(config.option.gpus, config.option.hosts)
    exchange = Exchange()
    guard = HangGuard(
        config.getoption("--hang-timeout"),
        f"rank {exchange.rank} of {exchange.size}",
        lambda: exchange.awaited,
    )
    config.add_cleanup(guard.stop)
    config.pluginmanager.register(Ranks(exchange, guard), "ringfold-ranks")


@pytest.fixture(scope="session")
def comm(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return the communicator of all ranks of this run."""
    import collectives
    from collectives import startup

    hosts = request.config.getoption("--hosts")
    with pytest.MonkeyPatch.context() as patch:
        if hosts:
            host_of = [int(host) for host in hosts.split(",")]
            patch.setattr(startup, "_those_on_this_host", partial(those_on, host_of))
        yield collectives.world()


@pytest.fixture(autouse=True)
def no_misuse() -> Iterator[None]:
    """Fail a test in which pretended devices were misused, whoever swallowed it."""
    yield
    told = gpus.misuse()
    assert not told, "misuse of a device:\n" + "\n".join(told)


def those_on(host_of: Sequence[int], comm: Any) -> Any:
    """Return the mpi4py communicator of the ranks of `comm` on a pretended host."""
    from mpi4py import MPI

    return comm.Split(host_of[MPI.COMM_WORLD.Get_rank()])


class Ranks:
    """The hooks that need to know the other ranks."""

    def __init__(self, exchange: Exchange, guard: HangGuard) -> None:
        self.exchange, self.guard = exchange, guard
        self.errors: list[str] = []

    @pytest.hookimpl(tryfirst=True)  # before the reporter prints its first line
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Silence all ranks but the first."""
        if self.exchange.rank != 0:
            silence = open(os.devnull, "w")  # noqa: SIM115
            session.config.get_terminal_writer()._file = silence
            session.config.add_cleanup(silence.close)

    def pytest_report_header(self) -> str:
        return f"ranks: {self.exchange.size}"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect, on all ranks alike, what this run is not for."""
        size = self.exchange.size
        for item in items:
            if size > 1 and not item.path.is_relative_to(MPI_TESTS):
                _refuse(
                    f"{item.nodeid} runs without mpirun; this is one of {size} ranks"
                )
        chosen = [_is_chosen(item, size, config.option) for item in items]
        unwanted = [item for item, yes in zip(items, chosen, strict=True) if not yes]
        items[:] = [item for item, yes in zip(items, chosen, strict=True) if yes]
        config.hook.pytest_deselected(items=unwanted)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to start where ranks would run different tests."""
        tests = [item.nodeid for item in session.items]
        views = self.exchange.all_gather((tests, self.errors))
        if all(view == views[0] for view in views):
            return
        lines = ["the ranks have not collected the same tests"]
        everywhere = set.intersection(*(set(theirs) for theirs, _ in views))
        for rank, (theirs, errors) in enumerate(views):
            extra = [test for test in theirs if test not in everywhere]
            lines.append(f"rank {rank}: {len(theirs)} tests, {len(errors)} errors")
            lines += [f"  not everywhere: {test}" for test in extra[:5]] + errors
        _refuse("\n".join(lines))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self.guard.watch(item.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # after all others had their say
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Give a phase of a test the same outcome on every rank."""
        report = yield
        if self.exchange.size > 1:
            failure = join(self.exchange.all_gather(Outcome.of(report)))
            if failure is not None:
                report.outcome, report.longrepr = "failed", failure
                report.sections.clear()  # those that matter are in the failure's text
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Leave together, so that no rank meets another one's MPI_Finalize."""
        self.guard.watch("the end of the session")
        self.exchange.all_gather(None)


def _is_chosen(item: pytest.Item, size: int, told: Any) -> bool:
    """Tell whether this run, on `size` ranks, is for the test."""
    if told.hosts and _is_for_one_host(item):
        return False
    if not told.gpus and item.get_closest_marker("gpus") is not None:
        return False
    used = told.gpus.split(",")[:size]
    if not gpus.all_have(used) and item.get_closest_marker("gpu_all") is not None:
        return False
    alone = gpus.all_have(used) and len(set(used)) == size
    if not alone and item.get_closest_marker("gpu_each") is not None:
        return False
    ranks = item.get_closest_marker("ranks")
    if ranks is not None and size not in ranks.args:
        return False
    return told.full or item.get_closest_marker("full") is None


def _is_for_one_host(item: pytest.Item) -> bool:
    """Tell whether a test is about ranks that all share one memory."""
    if item.get_closest_marker("one_host") is not None:
        return True
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(value in NEED_ONE_HOST for value in given if isinstance(value, str))


def _refuse(reason: str) -> NoReturn:
    """End the run with a usage error that only rank 0 prints."""
    pytest.exit(reason, returncode=pytest.ExitCode.USAGE_ERROR)
